"""The command line: `danl fit`, `danl compare`, `danl certify`, `danl datasets`."""
