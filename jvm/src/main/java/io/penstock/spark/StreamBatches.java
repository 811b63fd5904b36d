package io.penstock.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink;
import scala.runtime.BoxedUnit;

/** {@code writeStream.toTable}: the batches of a stream, each of which Python writes as penstock.spark.sink does. */
final class StreamBatches {
  /** Where Spark tells which query a batch is of. Its checkpoint keeps it. */
  private static final String QUERY_ID = "sql.streaming.queryId";

  private StreamBatches() {}

  /** The same stream, into a sink that asks Python; refused here if the table cannot be streamed into. */
  static LogicalPlan replacing(WriteToStream stream, LakeTable table) {
    Map<String, Object> request = new HashMap<>();
    request.put("table", table.facts());
    request.put("mode", stream.outputMode().toString().toLowerCase(java.util.Locale.ROOT));
    PenstockCatalog catalog = table.catalog();
    if (!catalog.hasPython()) {
      throw new JobRefused(
              "this Spark driver has no Python, which streams into a lake's tables need: " + JobDrivers.WITH_PYTHON)
          .inAnalysis();
    }
    catalog.ask("begin_stream", request);
    ForeachBatchSink<Row> sink =
        new ForeachBatchSink<>(
            new scala.runtime.AbstractFunction2<Dataset<Row>, Object, BoxedUnit>() {
              @Override
              public BoxedUnit apply(Dataset<Row> rows, Object batch) {
                write(catalog, request, rows, (Long) batch);
                return BoxedUnit.UNIT;
              }
            },
            ExpressionEncoder$.MODULE$.apply(stream.inputQuery().schema()));
    return withSink(stream, sink);
  }

  private static void write(PenstockCatalog catalog, Map<String, Object> known, Dataset<Row> rows, long batch) {
    var session = ((org.apache.spark.sql.classic.Dataset<Row>) rows).sparkSession();
    Map<String, Object> request = catalog.withState(known);
    // The stream has its branch since it began: what its session does meanwhile is no part of it.
    request.put("ref", "");
    request.put("transaction", "");
    request.put("query", session.sparkContext().getLocalProperty(QUERY_ID));
    request.put("batch", batch);
    JobDrivers.act(catalog.driver(), session, "batch", request, List.of(rows));
  }

  private static LogicalPlan withSink(WriteToStream stream, Object sink) {
    try {
      return Copies.with(stream, "sink", sink);
    } catch (ReflectiveOperationException another) {
      throw new JobRefused("this Spark is not known to stream into a lake's tables: use penstock.spark.sink", another);
    }
  }
}
