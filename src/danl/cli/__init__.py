"""The command line: `danl fit`, `compare`, `certify`, `report`, `reproduce`, `plan`, `datasets` and `flower`."""
