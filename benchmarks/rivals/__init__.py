"""What the papers of the field's methods claim, each tried on a problem of the paper's kind: `claim()` of every file."""
