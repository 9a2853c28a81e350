"""The paper's figures and claims, reproduced: what is run, where its rows are kept, and what is made of them.

    runs      what a run is, and which runs the figures are made of
    execute   one run: problem, optimum, start, solve
    store     one history and one record a run, in files; a run that is there is not computed again
    pool      all missing runs, on several processes, with a progress bar
    curves    from histories to medians and bands: the figures' data
    drawing   figures, from the curves alone
    tables    how the runs ended, what their masks came to, which F*
    claims    verdicts, from the rows alone, by stated rules
    open_points   what the paper leaves open, and what we chose
    pages     claims.json, claims.md, index.md and environment.json
    make      all of it, in order

Rows come first: figures and verdicts read files, never the results of a computation that has just been done.
"""
