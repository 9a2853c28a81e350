"""What a statistician reads of a fit: standard errors, families, tables, a model file, meta-analysis, the cohort."""
