package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.zip.GZIPInputStream;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of a table as a server tells them: which files Spark reads, which of their rows are deleted, and how the
 * table's columns come of those in the files. It is the plan that Python makes where a driver has it.
 */
final class ServerScan {
  private static final String ROW = "__penstock_row";
  private static final String START = "__penstock_start";
  private static final String WORD = "__penstock_word";
  private static final int WORD_ROWS = 64;

  private final SparkSession session;
  private final JsonNode answer;

  private ServerScan(SparkSession session, JsonNode answer) {
    this.session = session;
    this.answer = answer;
  }

  /** The rows that an answer tells. */
  static Dataset<Row> rows(SparkSession session, JsonNode answer) {
    try {
      return new ServerScan(session, answer).rows();
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
    Dataset<Row> read =
        session.baseRelationToDataFrame(TableFiles.relation(session, files, schema, partitions, piece.path("how")));
    if (!answer.hasNonNull("columns")) {
      return read;
    }
    List<Column> shown = new ArrayList<>();
    answer.get("columns").forEach(one -> shown.add(column(one)));
    if (!piece.hasNonNull("deleted")) {
      return read.select(shown.toArray(new Column[0]));
    }
    JsonNode deleted = piece.get("deleted");
    String file = deleted.path("file_column").asText();
    List<Column> numbered = new ArrayList<>(shown);
    numbered.add(functions.col(file));
    numbered.add(functions.col("_metadata.row_index").as(ROW));
    List<Column> names = new ArrayList<>();
    answer.get("columns").forEach(one -> names.add(functions.col(quoted(one.path("name").asText()))));
    return read.select(numbered.toArray(new Column[0]))
        .join(deleted(deleted, file), new String[] {file, ROW}, "left_anti")
        .select(names.toArray(new Column[0]));
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

  /** The rows that are left out, as the numbers of their files and their own. */
  private Dataset<Row> deleted(JsonNode told, String file) throws IOException {
    LongBuffer numbers = numbers(told.path("words").asText());
    List<Row> words = new ArrayList<>();
    while (numbers.hasRemaining()) {
      words.add(RowFactory.create((int) numbers.get(), numbers.get(), numbers.get()));
    }
    StructType columns =
        new StructType(
            new StructField[] {
              DataTypes.createStructField(file, DataTypes.IntegerType, true),
              DataTypes.createStructField(START, DataTypes.LongType, true),
              DataTypes.createStructField(WORD, DataTypes.LongType, true)
            });
    Column bits =
        functions.filter(
            functions.sequence(functions.lit(0), functions.lit(WORD_ROWS - 1)),
            bit -> functions.getbit(functions.col(WORD), bit).equalTo(1));
    return session
        .createDataFrame(words, columns)
        .select(functions.col(file), functions.col(START), functions.explode(bits).as(ROW))
        .select(functions.col(file), functions.col(START).plus(functions.col(ROW)).as(ROW))
        .hint(told.path("hint").asText());
  }

  private static LongBuffer numbers(String packed) throws IOException {
    byte[] bytes = Base64.getDecoder().decode(packed);
    try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(bytes))) {
      return ByteBuffer.wrap(in.readAllBytes()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }
}
