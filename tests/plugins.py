"""A plug-in as pip installs one: modules, and the entry points of a distribution beside them."""


def install(folder, name, entry_points, **modules):
    """Write the modules and the metadata of the distribution `name` into a folder, which has to be on sys.path.

    `entry_points` has the names of every group, as in pyproject.toml: {"danl.methods": {"mine": "module:Class"}}.
    """
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, names in entry_points.items()
        for line in [f"[{group}]", *(f"{each} = {target}" for each, target in names.items())]
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
