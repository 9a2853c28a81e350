"""`python -m benchmarks`: every measurement there is, printed as the documents show it."""

from benchmarks import readme_table


def main() -> None:
    readme_table.main()


if __name__ == "__main__":
    main()
