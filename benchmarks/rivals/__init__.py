"""What the papers of the field's methods claim, each tried on a problem of its kind: `claim()` of every file."""
