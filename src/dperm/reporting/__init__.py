"""What a fit reports about its privacy: the report as data, its summary, and its page for privacy officers.

``report`` is the data (:class:`~dperm.reporting.report.PrivacyReport`), ``page`` the HTML page, ``labels`` the plain
names that people read, ``figures`` and ``style`` how the page looks. This package reads
:mod:`dperm.privacy.accounting` and never touches data. A new part of the page is a function in ``page``; a new query
gets its plain name in ``labels``.
"""
