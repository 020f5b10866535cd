"""Language models as functions of their parameters, and their files."""
