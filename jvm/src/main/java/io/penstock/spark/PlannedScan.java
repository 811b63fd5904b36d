package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;

/**
 * The rows of a table by a plan that Python made, in the driver's process or in a server: which files Spark reads, which
 * of their rows are deleted, and how the table's columns are made of those in the files.
 */
public final class PlannedScan {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final SparkSession session;
  private final JobDriver driver;
  private final JsonNode answer;

  private PlannedScan(SparkSession session, JobDriver driver, JsonNode answer) {
    this.session = session;
    this.driver = driver;
    this.answer = answer;
  }

  /** The rows of a table, by a plan in JSON. */
  public static Dataset<Row> rows(SparkSession session, String plan) throws IOException {
    return new PlannedScan(session, JobDrivers.chosen(), JSON.readTree(plan)).rows();
  }

  /**
   * The rows that an answer tells.
   *
   * @param driver who tells which files a filter leaves out; null for the Python process of the lake
   */
  static Dataset<Row> rows(SparkSession session, JobDriver driver, JsonNode answer) {
    try {
      return new PlannedScan(session, driver, answer).rows();
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  private Dataset<Row> rows() throws IOException {
    Dataset<Row> all = null;
    for (JsonNode piece : answer.path("pieces")) {
      Dataset<Row> rows = rows(piece);
      all = all == null ? rows : all.union(rows);
    }
    return all;
  }

  private Dataset<Row> rows(JsonNode piece) throws IOException {
    byte[] files = Base64.getDecoder().decode(piece.path("files").asText());
    String schema = piece.hasNonNull("schema") ? piece.get("schema").asText() : null;
    String partitions = piece.path("partition_schema").asText();
    HadoopFsRelation relation = TableFiles.relation(session, files, schema, partitions, piece.path("how"), driver);
    boolean isPartial = piece.hasNonNull("deleted");
    Dataset<Row> read = session.baseRelationToDataFrame(isPartial ? TableFiles.numbered(relation) : relation);
    if (!answer.hasNonNull("columns")) {
      return read;
    }
    List<Column> shown = new ArrayList<>();
    answer.get("columns").forEach(one -> shown.add(column(one)));
    if (!isPartial) {
      return read.select(shown.toArray(new Column[0]));
    }
    JsonNode deleted = piece.get("deleted");
    byte[] words = Base64.getDecoder().decode(deleted.path("words").asText());
    Column file = functions.col(deleted.path("file_column").asText());
    Column isDeleted = MarkedRows.among(session, words, file, functions.col(TableFiles.ROW_INDEX));
    return read.where(functions.not(isDeleted)).select(shown.toArray(new Column[0]));
  }

  /** A column of the table, made of one that was read. */
  private static Column column(JsonNode told) {
    String name = told.path("name").asText();
    if (!told.hasNonNull("source")) {
      return functions.lit(null).as(name);
    }
    Column column = functions.col(quoted(told.get("source").asText()));
    if (told.hasNonNull("cast")) {
      column = column.cast(DataType.fromJson(told.get("cast").toString()));
    }
    // So that no comparison of real numbers is pushed down to files whose bounds may leave out NaN.
    return switch (told.path("guard").asText()) {
      case "real" -> functions.nanvl(column, column).as(name);
      case "struct" -> functions.when(column.isNotNull(), column).as(name);
      default -> column.as(name);
    };
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }
}
