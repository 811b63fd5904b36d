package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.TimestampNTZType;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * What a plan reads at a path that stands for a table of a lake, or with an option that names one, becomes a read of the
 * files that the lake has: who decides is asked for them ({@link JobDriver}). All that one query reads of a branch is of
 * one commit.
 */
final class MappedReads extends Rule<LogicalPlan> {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int PASSED_MAX = 10_000;
  /** Reads that are none of a lake's: the session's setting and the paths. Rules run many times for each query. */
  private static final Set<String> PASSED = ConcurrentHashMap.newKeySet();
  private static final ThreadLocal<Query> QUERY = new ThreadLocal<>();
  /** The commits of the whole query, while a part of it is analysed by itself. */
  private static final ThreadLocal<Map<String, JsonNode>> WHOLE = new ThreadLocal<>();

  private final SparkSession session;

  MappedReads(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    // In all of the plan. What was analysed before is no exception: relations that Spark keeps for its catalogue's
    // tables count as such after their first use.
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(() -> plan.transformUp(new Answers()));
  }

  private final class Answers extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof UnresolvedDataSource
          || node instanceof UnresolvedRelation
          || node instanceof LogicalRelation
          || node instanceof StreamingRelation;
    }

    @Override
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      LogicalPlan found = isDefinedAt(node) ? answered(node) : null;
      @SuppressWarnings("unchecked")
      B result = found == null ? otherwise.apply(node) : (B) found;
      return result;
    }
  }

  /** What is read instead of a node; null if that stays as it is. */
  private LogicalPlan answered(LogicalPlan node) {
    if (node instanceof UnresolvedDataSource source) {
      return ofReader(source);
    }
    if (node instanceof UnresolvedRelation relation) {
      return ofFormatAndPath(relation);
    }
    if (node instanceof LogicalRelation leaf && leaf.relation() instanceof HadoopFsRelation relation) {
      return relation.location() instanceof TableFiles ? null : ofTable(leaf, relation);
    }
    return node instanceof StreamingRelation stream ? ofStream(stream.dataSource()) : null;
  }

  /** {@code spark.read}. */
  private LogicalPlan ofReader(UnresolvedDataSource source) {
    Map<String, String> options = WriteFacts.originals(source.options());
    List<String> paths = new ArrayList<>(CollectionConverters.asJava(source.paths()));
    paths.addAll(named(options));
    Read read = new Read(source.format(), paths, options);
    read.facts.put("is_stream", source.isStreaming());
    if (source.userSpecifiedSchema().isDefined()) {
      read.facts.put("schema", source.userSpecifiedSchema().get().json());
    }
    HadoopFsRelation found = read.ask();
    return found == null ? null : LogicalRelation$.MODULE$.apply(found, false);
  }

  /** {@code SELECT … FROM parquet.`/path`}. */
  private LogicalPlan ofFormatAndPath(UnresolvedRelation relation) {
    List<String> parts = CollectionConverters.asJava(relation.multipartIdentifier());
    if (parts.size() != 2 || parts.get(1).indexOf('/') < 0) {
      return null;
    }
    Map<String, String> options = new HashMap<>(relation.options().asCaseSensitiveMap());
    Read read = new Read(parts.get(0), List.of(parts.get(1)), options);
    read.facts.put("is_stream", relation.isStreaming());
    HadoopFsRelation found = read.ask();
    return found == null ? null : LogicalRelation$.MODULE$.apply(found, false);
  }

  /** A table of Spark's catalogue, or a view of files. Others refer to its columns already, so these stay. */
  private LogicalPlan ofTable(LogicalRelation leaf, HadoopFsRelation relation) {
    List<String> paths = new ArrayList<>();
    CollectionConverters.asJava(relation.location().rootPaths()).forEach(one -> paths.add(one.toString()));
    Read read = new Read(WriteFacts.name(relation.fileFormat()), paths, WriteFacts.originals(relation.options()));
    read.facts.put("schema", relation.schema().json());
    read.facts.put("partition_by", relation.partitionSchema().fieldNames());
    HadoopFsRelation found = read.ask();
    if (found == null) {
      return null;
    }
    return new LogicalRelation(found, leaf.output(), leaf.catalogTable().map(MappedReads::unmeasured), false, Option.empty());
  }

  /** A table without what its catalogue knows of its size: that is of the files at its path. */
  private static CatalogTable unmeasured(CatalogTable table) {
    if (table.stats().isEmpty()) {
      return table;
    }
    try {
      return Copies.with(table, "stats", Option.empty());
    } catch (ReflectiveOperationException another) {
      return table; // of a Spark that is not known yet; only estimates are wrong
    }
  }

  /** A stream from a table of Spark's catalogue. */
  private LogicalPlan ofStream(DataSource source) {
    Map<String, String> options = WriteFacts.originals(source.options());
    List<String> paths = new ArrayList<>(CollectionConverters.asJava(source.paths()));
    paths.addAll(named(options));
    Read read = new Read(source.className(), paths, options);
    read.facts.put("is_stream", true);
    read.ask();
    return null;
  }

  /** The paths that options name. */
  private static List<String> named(Map<String, String> options) {
    List<String> paths = new ArrayList<>();
    for (Map.Entry<String, String> option : options.entrySet()) {
      if (option.getKey().equalsIgnoreCase("path")) {
        paths.add(option.getValue());
      } else if (option.getKey().equalsIgnoreCase("paths")) {
        try {
          paths.addAll(List.of(JSON.readValue(option.getValue(), String[].class)));
        } catch (IOException notOurs) {
          // Spark says what is wrong with it.
        }
      }
    }
    return paths;
  }

  /** The commits that the query which this thread analyses reads, by revision. */
  static Map<String, JsonNode> pinned() {
    if (WHOLE.get() != null) {
      return WHOLE.get();
    }
    Object key = AnalysisContext.get().relationCache(); // one for each query, for its views and subqueries too
    Query known = QUERY.get();
    if (known == null || known.key.get() != key) {
      known = new Query(new WeakReference<>(key), new HashMap<>());
      QUERY.set(known);
    }
    return known.pinned;
  }

  /** Analyse a part of the query by itself: what it reads of a branch is of the same commit. */
  static <T> T withSamePins(Supplier<T> work) {
    Map<String, JsonNode> before = WHOLE.get();
    WHOLE.set(pinned());
    try {
      return work.get();
    } finally {
      WHOLE.set(before);
    }
  }

  private record Query(WeakReference<Object> key, Map<String, JsonNode> pinned) {}

  /** One read, and the answer to it. */
  private final class Read {
    final Map<String, Object> facts = new HashMap<>();
    private final SQLConf settings = SQLConf.get();
    private final String format;
    private final List<String> given;
    private final Map<String, String> options;
    private final List<String> paths = new ArrayList<>();
    private Configuration configuration;

    Read(String format, List<String> given, Map<String, String> options) {
      this.format = format;
      this.given = given;
      this.options = options;
    }

    /** The files of the lake; null if it is no table of one, or there are no paths. Most are none: that is found fast. */
    HadoopFsRelation ask() {
      List<String> names = WriteFacts.settings(settings);
      String passed = WriteFacts.tables() + names + given;
      boolean hasOptions = options.keySet().stream().anyMatch(CommitProtocol::isOption);
      if (!hasOptions && (WriteFacts.areUsual(names) || given.isEmpty() || PASSED.contains(passed))) {
        return null;
      }
      configuration = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().newHadoopConf();
      given.forEach(one -> paths.add(whole(one)));
      Map<String, JsonNode> pinned = pinned();
      facts.put("format", TableFiles.shortName(session, format));
      facts.put("options", options);
      facts.put("paths", paths);
      facts.put("home", FileSystem.getDefaultUri(configuration).toString());
      facts.put("tables", WriteFacts.tables());
      facts.put("settings", names);
      facts.put("pinned", pinned);
      facts.put("zone", settings.sessionLocalTimeZone());
      facts.put("infers", settings.partitionColumnTypeInferenceEnabled());
      facts.put("has_local_times", settings.timestampType() instanceof TimestampNTZType);
      facts.put("is_case_sensitive", settings.caseSensitiveAnalysis());
      JsonNode answer = JobDrivers.ask(JobDrivers.current(), "read", Map.of("facts", facts));
      if (!answer.path("is_ours").asBoolean()) {
        if (PASSED.size() < PASSED_MAX) {
          PASSED.add(passed);
        }
        return null;
      }
      pinned.put(answer.path("ref").asText(), answer.path("pin"));
      String refusal = answer.path("refusal").asText();
      if (!refusal.isEmpty() && haveFiles()) {
        throw new JobRefused(refusal);
      }
      return relation(answer);
    }

    private HadoopFsRelation relation(JsonNode answer) {
      byte[] files = Base64.getDecoder().decode(answer.path("files").asText());
      String schema = answer.hasNonNull("schema") ? answer.get("schema").asText() : null;
      try {
        return TableFiles.relation(
            session, files, schema, answer.path("partition_schema").asText(), answer.path("how"), null);
      } catch (IOException problem) {
        throw new UncheckedIOException(problem);
      }
    }

    /** Whether there is any file that Spark would read. */
    private boolean haveFiles() {
      try {
        for (String one : paths) {
          Path path = new Path(one);
          var files = path.getFileSystem(configuration).listFiles(path, true);
          while (files.hasNext()) {
            if (!files.next().getPath().getName().matches("[._].*")) {
              return true;
            }
          }
        }
        return false;
      } catch (FileNotFoundException nothing) {
        return false;
      } catch (IOException problem) {
        throw new UncheckedIOException(problem);
      }
    }

    private String whole(String given) {
      try {
        Path path = new Path(given);
        return path.toUri().getScheme() == null
            ? FileSystem.get(configuration).makeQualified(path).toString()
            : path.toString();
      } catch (IllegalArgumentException | IOException notOurs) {
        return given; // Spark says what is wrong with it
      }
    }
  }
}
