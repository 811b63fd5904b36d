package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NaNvl;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union$;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

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
    return Dataset$.MODULE$.ofRows(
        (org.apache.spark.sql.classic.SparkSession) session,
        new PlannedScan(session, JobDrivers.chosen(), JSON.readTree(plan)).plan());
  }

  /**
   * The rows that an answer tells, as a plan whose columns Spark knows already: to analyse a DataFrame for each of its
   * steps would take as long as to read many rows.
   *
   * @param driver who tells which files a filter leaves out; null for the Python process of the lake
   */
  static LogicalPlan plan(SparkSession session, JobDriver driver, JsonNode answer) {
    try {
      return new PlannedScan(session, driver, answer).plan();
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  private LogicalPlan plan() throws IOException {
    LogicalPlan all = null;
    for (JsonNode piece : answer.path("pieces")) {
      LogicalPlan rows = plan(piece);
      all = all == null ? rows : Union$.MODULE$.apply(all, rows);
    }
    return all;
  }

  private LogicalPlan plan(JsonNode piece) throws IOException {
    byte[] files = Base64.getDecoder().decode(piece.path("files").asText());
    String schema = piece.hasNonNull("schema") ? piece.get("schema").asText() : null;
    String partitions = piece.path("partition_schema").asText();
    HadoopFsRelation relation = TableFiles.relation(session, files, schema, partitions, piece.path("how"), driver);
    if (piece.hasNonNull("deleted")) {
      relation = TableFiles.selected(relation, relation.dataSchema(), deleted(piece.get("deleted")));
    }
    LogicalPlan read = LogicalRelation$.MODULE$.apply(relation, false);
    if (!answer.hasNonNull("columns")) {
      return read;
    }
    List<Attribute> output = CollectionConverters.asJava(read.output());
    Map<String, Attribute> columns = new HashMap<>();
    output.forEach(one -> columns.put(one.name(), one));
    List<NamedExpression> shown = new ArrayList<>();
    answer.get("columns").forEach(one -> shown.add(column(one, columns)));
    if (shown.equals(output)) {
      return read;
    }
    return new Project(immutable(shown), read);
  }

  private MarkedRows deleted(JsonNode deleted) throws IOException {
    byte[] words = Base64.getDecoder().decode(deleted.path("words").asText());
    return MarkedRows.unpack(session, words, deleted.path("file_column").asText(), true);
  }

  /** A column of the table, made of one that was read. */
  private NamedExpression column(JsonNode told, Map<String, Attribute> columns) {
    String name = told.path("name").asText();
    Attribute read = told.hasNonNull("source") ? columns.get(told.get("source").asText()) : null;
    Expression column = read == null ? new Literal(null, DataTypes.NullType) : read;
    if (told.hasNonNull("cast")) {
      column = cast(column, DataType.fromJson(told.get("cast").toString()));
    }
    // So that no comparison of real numbers is pushed down to files whose bounds may leave out NaN.
    column =
        switch (told.path("guard").asText()) {
          case "real" -> new NaNvl(column, column);
          case "struct" -> new CaseWhen(immutable(List.of(new Tuple2<>(new IsNotNull(column), column))), Option.empty());
          default -> column;
        };
    return column == read && read.name().equals(name)
        ? read
        : named(column, name);
  }

  static NamedExpression named(Expression column, String name) {
    return new Alias(column, name, NamedExpression.newExprId(), immutable(List.of()), Option.empty(), immutable(List.of()));
  }

  private Expression cast(Expression column, DataType type) {
    SQLConf settings = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf();
    return new Cast(column, type, Option.apply(settings.sessionLocalTimeZone()), EvalMode.fromSQLConf(settings));
  }

  private static <T> Seq<T> immutable(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
