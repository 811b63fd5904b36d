package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
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
 * The rows of a table by a plan that Python made, in the driver's process or in a server: which files Spark reads, which
 * of their rows are deleted, and how the table's columns are made of those in the files.
 */
public final class PlannedScan {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String ROW = "__penstock_row";
  private static final String KEY = "__penstock_key";
  private static final String WORD = "__penstock_word";

  /** Of the number of a row, the bits that tell its place in its word. */
  private static final int WORD_BITS = 6;

  /** By how many bits the number of a file is before that of a word: no file has so many. */
  private static final int FILE_SHIFT = 34;

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
    Dataset<Row> read =
        session.baseRelationToDataFrame(
            TableFiles.relation(session, files, schema, partitions, piece.path("how"), driver));
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
        .join(deleted(deleted), isNamed(functions.col(file), functions.col(ROW)), "left_anti")
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

  /** Whether a word names a row: that of its file and of its 64 rows. */
  private static Column isNamed(Column file, Column row) {
    Column key =
        functions
            .shiftleft(file.cast(DataTypes.LongType), FILE_SHIFT)
            .bitwiseOR(functions.shiftright(row, WORD_BITS));
    Column bit = row.bitwiseAND(functions.lit((1L << WORD_BITS) - 1)).cast(DataTypes.IntegerType);
    return key.equalTo(functions.col(KEY)).and(functions.getbit(functions.col(WORD), bit).equalTo(1));
  }

  /** The words that name the rows that are left out, by file and number. */
  private Dataset<Row> deleted(JsonNode told) throws IOException {
    LongBuffer numbers = numbers(told.path("words").asText());
    List<Row> words = new ArrayList<>();
    while (numbers.hasRemaining()) {
      long file = numbers.get() << FILE_SHIFT;
      words.add(RowFactory.create(file | numbers.get() >> WORD_BITS, numbers.get()));
    }
    StructType columns =
        new StructType(
            new StructField[] {
              DataTypes.createStructField(KEY, DataTypes.LongType, false),
              DataTypes.createStructField(WORD, DataTypes.LongType, false)
            });
    return session.createDataFrame(words, columns).hint(told.path("hint").asText());
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
