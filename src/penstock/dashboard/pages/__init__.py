"""The pages of the dashboard: one module and one view model each."""
