"""A Spark session of this machine, with Python workers in processes of their own, and tables on it.

``python tests/spark_session.py`` starts one and has its workers read a table: whether Spark runs on this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from programs import find_java

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


#: marks of every module of tests on Spark
MARKS = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
]


class Unavailable(Exception):
    """Why there is no Spark on this machine."""


@contextmanager
def spark_session() -> Iterator[Any]:
    """Start Spark in this process, and stop it at the end."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Unavailable("pyspark is not installed: run make test-spark") from None
    if find_java() is None:
        raise Unavailable("Spark needs Java 17 or later: run make test-spark")
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = SparkSession.builder.master("local[2,4]").appName("dperm tests")  # a task may fail three times
    for name, value in _SETTINGS.items():
        made = made.config(name, value)
    session = made.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def frame_of(spark: Any, X: Any, y: Any, names: list[str] | None = None, parts: int = 2) -> Any:
    """Return a DataFrame whose partitions hold the rows in their order; the target is its column ``label``."""
    rows = [(*row, label) for row, label in zip(np.asarray(X).tolist(), np.asarray(y).tolist(), strict=True)]
    columns = [f"x{k}" for k in range(X.shape[1])] if names is None else names
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), [*columns, "label"])


if __name__ == "__main__":
    with spark_session() as started:
        read = frame_of(started, np.zeros((9, 2)), np.zeros(9)).rdd.map(len).collect()
    sys.exit(read != [3] * 9)
