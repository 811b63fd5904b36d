package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;

/** Rows that a driver without Python writes to a table, as a server says. */
final class ServerWrite {
  private static final String PROTOCOL_SETTING = "spark.sql.sources.commitProtocolClass";

  private final PenstockCatalog catalog;
  private final JsonNode plan;

  private ServerWrite(PenstockCatalog catalog, JsonNode plan) {
    this.catalog = catalog;
    this.plan = plan;
  }

  /** Write the rows of a statement. */
  static void run(PenstockCatalog catalog, Map<String, Object> request, LogicalPlan rows) {
    Map<String, Object> whole = new HashMap<>(request);
    whole.put("schema", rows.schema().json());
    ServerWrite write = new ServerWrite(catalog, catalog.ask("write", whole));
    if (write.plan.path("format").asText().isEmpty()) {
      return; // there is nothing to be done
    }
    write.save(rows);
    if (write.hasToldFiles()) {
      whole.put("written", write.written());
      catalog.ask("commit_rows", whole);
    }
  }

  /** Write no rows, where a table is created or emptied by that. */
  static void runEmpty(PenstockCatalog catalog, JsonNode plan, StructType columns) {
    Dataset<Row> nothing = catalog.session().createDataFrame(List.of(), columns);
    new ServerWrite(catalog, plan)
        .save(((org.apache.spark.sql.classic.Dataset<Row>) nothing).queryExecution().analyzed());
  }

  /** Whether the server commits what is told it afterwards; other jobs ask it themselves ({@link SessionJob}). */
  private boolean hasToldFiles() {
    return !plan.path("job").asText().isEmpty();
  }

  private void save(LogicalPlan rows) {
    // Settings of a session that is used for nothing else: those of the user's stay as they are.
    SparkSession session = catalog.session().cloneSession();
    session.conf().set(PROTOCOL_SETTING, CommitProtocol.class.getName());
    PenstockCatalog.texts(plan.path("settings")).forEach((name, value) -> session.conf().set(name, value));
    Dataset<Row> written = Dataset$.MODULE$.ofRows(session, rows);
    for (Map.Entry<String, String> column : PenstockCatalog.texts(plan.path("expressions")).entrySet()) {
      written = written.withColumn(column.getKey(), functions.expr(column.getValue()));
    }
    List<String> by = new ArrayList<>();
    plan.path("partition_by").forEach(one -> by.add(one.asText()));
    DataFrameWriter<Row> writer =
        written
            .write()
            .format(plan.path("format").asText())
            .mode(plan.path("mode").asText())
            .options(PenstockCatalog.texts(plan.path("options")));
    DataFrameWriter<Row> partitioned = by.isEmpty() ? writer : writer.partitionBy(by.toArray(new String[0]));
    try {
      JobDrivers.during(
          catalog.driver(),
          () -> session.withActive(() -> save(partitioned)));
    } catch (RuntimeException problem) {
      throw refused(problem);
    }
  }

  private Object save(DataFrameWriter<Row> writer) {
    writer.save(plan.path("path").asText());
    return null;
  }

  private Map<String, Object> written() {
    try {
      byte[] lines = CommitProtocol.take(plan.path("job").asText());
      if (lines == null) {
        throw new JobRefused("Spark did not write by Penstock's commit protocol; nothing was committed").inAnalysis();
      }
      return Map.of(
          "job", plan.path("job").asText(),
          "planned", plan.path("planned").asText(),
          "began_us", plan.path("began_us").asLong(),
          "files", Base64.getEncoder().encodeToString(lines));
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  /** The lake's own error in what Spark makes of it. */
  private static RuntimeException refused(RuntimeException problem) {
    for (Throwable one = problem; one != null; one = one.getCause()) {
      if (one instanceof JobRefused refused) {
        return refused.inAnalysis();
      }
    }
    return problem;
  }
}
