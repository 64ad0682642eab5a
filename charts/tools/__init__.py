"""Makes the chart's README, schema and copy of the CRD (``python -m charts.tools.docs``), and the SBOM of the image."""
