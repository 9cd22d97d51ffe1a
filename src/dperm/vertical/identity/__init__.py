"""Names, keys, certificates and revocation: how participants prove who they are.

The lowest room of the vertical runtime. It imports nothing from the other rooms and touches only key and certificate
files. New ways to prove or check an identity go here.
"""
