"""The resource: its models (spec, status, metadata), its rules, and the CRD that is generated from them. No I/O."""
