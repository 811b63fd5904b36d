package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.trees.LeafLike;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import org.apache.spark.sql.execution.command.RunnableCommand;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Enumeration;
import scala.Function1;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A statement that changes rows, and answers how many: with the columns that Delta's statements have. Spark's own command
 * for others to carry out has one column of text.
 */
public final class RowChangeCommand extends LogicalPlan implements LeafRunnableCommand {
  private static final long serialVersionUID = 1;
  private static final String AFFECTED = "num_affected_rows";
  private static final Map<String, List<String>> COLUMNS =
      Map.of(
          "delete", List.of(AFFECTED),
          "update", List.of(AFFECTED),
          "merge", List.of(AFFECTED, "num_updated_rows", "num_deleted_rows", "num_inserted_rows"));

  private final transient ExternalCommandRunner runner;
  private final String command;
  private final scala.collection.immutable.Map<String, String> options;
  private transient Seq<Enumeration.Value> patterns;
  private transient Seq<Attribute> columns;

  /** Spark copies a command by what {@link #productElement} tells. */
  public RowChangeCommand(
      ExternalCommandRunner runner, String command, scala.collection.immutable.Map<String, String> options) {
    this.runner = runner;
    this.command = command;
    this.options = options;
    Command.$init$(this);
    LeafLike.$init$(this);
    RunnableCommand.$init$(this);
  }

  /** Whether a step changes rows. */
  static boolean isFor(String step) {
    return COLUMNS.containsKey(step);
  }

  /** The numbers of an answer, one for each column of a step; empty for what is not known. */
  static String[] counts(String step, Object answer) {
    List<String> found = new ArrayList<>();
    for (String column : COLUMNS.get(step)) {
      found.add(answer instanceof JsonNode told ? told.path("counts").path(column).asText("") : "");
    }
    return found.toArray(new String[0]);
  }

  @Override
  public Seq<Attribute> output() {
    if (columns == null) {
      StructType schema = new StructType();
      for (String name : COLUMNS.get(command)) {
        schema = schema.add(name, DataTypes.LongType);
      }
      List<Attribute> attributes = new ArrayList<>();
      CollectionConverters.asJava(DataTypeUtils$.MODULE$.toAttributes(schema)).forEach(attributes::add);
      columns = seq(attributes);
    }
    return columns;
  }

  @Override
  public Seq<Row> run(SparkSession session) {
    String[] texts = runner.executeCommand(command, new CaseInsensitiveStringMap(CollectionConverters.asJava(options)));
    Object[] numbers = new Object[texts.length];
    for (int at = 0; at < texts.length; at++) {
      numbers[at] = texts[at].isEmpty() || texts[at].equals("null") ? null : Long.valueOf(texts[at]);
    }
    return seq(List.of(RowFactory.create(numbers)));
  }

  // -- what Scala would write by itself ------------------------------------------------------------------------------

  @Override
  public Seq<LogicalPlan> children() {
    return seq(List.of());
  }

  @Override
  public LogicalPlan mapChildren(Function1<LogicalPlan, LogicalPlan> change) {
    return this;
  }

  @Override
  public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
    return this;
  }

  @Override
  public scala.collection.immutable.Map<String, SQLMetric> metrics() {
    return LeafRunnableCommand.super.metrics();
  }

  @Override
  public AttributeSet producedAttributes() {
    return LeafRunnableCommand.super.producedAttributes();
  }

  @Override
  public Statistics stats() {
    return LeafRunnableCommand.super.stats();
  }

  @Override
  public Seq<Enumeration.Value> nodePatterns() {
    return patterns;
  }

  @Override
  public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(
      Seq<Enumeration.Value> found) {
    patterns = found;
  }

  @Override
  public int productArity() {
    return 3;
  }

  @Override
  public Object productElement(int at) {
    return List.of(runner, command, options).get(at);
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof RowChangeCommand;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof RowChangeCommand one
        && runner.equals(one.runner)
        && command.equals(one.command)
        && options.equals(one.options);
  }

  @Override
  public int hashCode() {
    return runner.hashCode();
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
