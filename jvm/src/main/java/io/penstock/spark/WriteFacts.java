package io.penstock.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSourceV1;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What this thread's session is about to write, as far as Spark's plan of it tells.
 *
 * <p>The protocol itself is told a path, and nothing of the save mode or of the table.
 */
final class WriteFacts {
  /** Paths and the tables that writes there are for, as a JSON object. */
  static final String TABLES = "spark.penstock.tables";

  private static final String SETTING = "spark.penstock.";
  private static final Set<String> USUAL = Set.of(JobDrivers.LAKE, JobDrivers.LAKE_ID, PenstockCatalog.REF, TABLES);
  private static final String EXECUTION = "spark.sql.execution.id";
  private static final String ROOT_EXECUTION = "spark.sql.execution.root.id";

  private final String path;
  private final InsertIntoHadoopFsRelationCommand command;

  private WriteFacts(String path, InsertIntoHadoopFsRelationCommand command) {
    this.path = path;
    this.command = command;
  }

  /** Of the write to a path that this thread is about to begin. Only the driver can tell. */
  static WriteFacts of(String path) {
    LogicalPlan plan = running(EXECUTION);
    if (plan == null) {
      return new WriteFacts(path, null);
    }
    return new WriteFacts(path, find(plan, new Path(path)));
  }

  /** The options of the write, by names in lower case. */
  Map<String, String> options() {
    Map<String, String> found = new HashMap<>();
    CollectionConverters.asJava(given()).forEach((name, value) -> found.put(name.toLowerCase(Locale.ROOT), value));
    return found;
  }

  private scala.collection.immutable.Map<String, String> given() {
    if (command != null) {
      return command.options();
    }
    return running(EXECUTION) instanceof WriteToMicroBatchDataSourceV1 batch
        ? batch.writeOptions()
        : scala.collection.immutable.Map$.MODULE$.<String, String>empty();
  }

  /** Options as they were spelled. */
  static Map<String, String> originals(scala.collection.immutable.Map<String, String> options) {
    return new HashMap<>(
        CollectionConverters.asJava(options instanceof CaseInsensitiveMap<String> any ? any.originalMap() : options));
  }

  /** The names of all settings of a session that are for a lake. */
  static List<String> settings(SQLConf session) {
    return CollectionConverters.asJava(session.getAllConfs()).keySet().stream()
        .filter(one -> one.startsWith(SETTING))
        .sorted()
        .toList();
  }

  /** Whether there are only those that say which lake a session works with: no paths stand for tables. */
  static boolean areUsual(List<String> settings) {
    return tables().isEmpty() && USUAL.containsAll(settings);
  }

  static String tables() {
    return SQLConf.get().getConfString(TABLES, "");
  }

  /** All of them, as they are passed on. */
  Map<String, Object> all() {
    SparkContext context = SparkContext.getOrCreate();
    Configuration configuration = context.hadoopConfiguration();
    Map<String, Object> facts = new HashMap<>();
    facts.put("path", path);
    facts.put("home", FileSystem.getDefaultUri(configuration).toString());
    facts.put("tables", tables());
    facts.put("settings", settings(SQLConf.get()));
    facts.put("has_reads", SessionRules.areIn(SparkSession.active()));
    facts.put("options", options());
    facts.put("application", context.applicationId());
    facts.put("application_name", context.appName());
    if (command == null) {
      return facts;
    }
    facts.put("mode", command.mode().name());
    facts.put("is_skipped", isSkipped(configuration));
    facts.put("statement", statement());
    facts.put("static_folder", staticFolder());
    facts.put("if_not_exists", command.ifPartitionNotExists());
    facts.put("partition_overwrite", partitionOverwrite());
    facts.put("partition_by", names());
    facts.put("format", name(command.fileFormat()));
    facts.put("schema", schema().json());
    facts.put("read", TableFiles.origins(command.query()));
    return facts;
  }

  /** The name of Spark's command that the user has started, which may do more than write. */
  private static String statement() {
    LogicalPlan root = running(ROOT_EXECUTION);
    return root == null ? "" : root.getClass().getSimpleName();
  }

  /** Whether Spark is about to do nothing, because something is at the path. */
  private boolean isSkipped(Configuration configuration) {
    if (command.mode() != SaveMode.Ignore) {
      return false;
    }
    try {
      return new Path(path).getFileSystem(configuration).exists(new Path(path));
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  /** The folder of the partitions whose values the write fixes, as Spark spells it; with a slash at its end. */
  private String staticFolder() {
    Map<String, String> fixed = CollectionConverters.asJava(command.staticPartitions());
    StringBuilder folder = new StringBuilder();
    for (String name : names()) {
      if (fixed.containsKey(name)) {
        folder.append(ExternalCatalogUtils.getPartitionPathString(name, fixed.get(name))).append('/');
      }
    }
    return folder.toString();
  }

  private String partitionOverwrite() {
    String session = SQLConf.get().getConfString("spark.sql.sources.partitionOverwriteMode", "static");
    return options().getOrDefault("partitionoverwritemode", session);
  }

  private List<String> names() {
    List<String> names = new ArrayList<>();
    for (Attribute column : CollectionConverters.asJava(command.partitionColumns())) {
      names.add(column.name());
    }
    return names;
  }

  static String name(FileFormat format) {
    return format instanceof DataSourceRegister named ? named.shortName() : format.getClass().getName();
  }

  private StructType schema() {
    StructField[] fields = command.query().schema().fields();
    List<String> names = CollectionConverters.asJava(command.outputColumnNames());
    StructField[] named = new StructField[fields.length];
    for (int at = 0; at < fields.length; at++) {
      StructField field = fields[at];
      named[at] = new StructField(names.get(at), field.dataType(), field.nullable(), field.metadata());
    }
    return new StructType(named);
  }

  /** The plan of what this thread runs. */
  private static LogicalPlan running(String property) {
    String id = SparkContext.getOrCreate().getLocalProperty(property);
    QueryExecution execution = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    return execution == null ? null : execution.analyzed();
  }

  /** The command that writes to a path: a statement may have several. */
  private static InsertIntoHadoopFsRelationCommand find(LogicalPlan plan, Path path) {
    if (plan instanceof InsertIntoHadoopFsRelationCommand command && command.outputPath().equals(path)) {
      return command;
    }
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      InsertIntoHadoopFsRelationCommand found = find(child, path);
      if (found != null) {
        return found;
      }
    }
    return null;
  }
}
