"""What a statistician asks for, and the design that the sites agree on before a number of the fit is exchanged."""
