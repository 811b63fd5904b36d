package io.penstock.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * What Penstock adds to every session of a Spark that is started with its jar. Spark finds this class by itself, and
 * the user's own extensions stay as they are.
 */
public final class SessionRules implements SparkSessionExtensionsProvider {
  private static final Logger LOG = LoggerFactory.getLogger(SessionRules.class);

  /** Made by Spark. */
  public SessionRules() {}

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    String problem = SparkVersion.problem(org.apache.spark.package$.MODULE$.SPARK_VERSION());
    if (!problem.isEmpty()) {
      LOG.error(problem); // Spark would show an error with its trace, and go on without the rules all the same
      return BoxedUnit.UNIT;
    }
    // Before Spark looks whether there is anything at a path, which it does as soon as it knows the format; and after
    // it has looked up the tables of its catalogue.
    extensions.injectHintResolutionRule(MappedReads::new);
    extensions.injectResolutionRule(MappedReads::new);
    // Before Spark looks which columns of a table the rows of a statement go to.
    extensions.injectHintResolutionRule(WidenedTables::new);
    // Before Spark says that a catalogue has no views.
    extensions.injectHintResolutionRule(ViewStatements::new);
    if (SparkVersion.HAS_VIEWS) {
      // Before Spark looks for the names in the text of a view; and after it has found no table for one with a version.
      extensions.injectHintResolutionRule(session -> new ViewRevisions(session, true));
      extensions.injectResolutionRule(session -> new ViewRevisions(session, false));
    }
    // Before Spark looks for a function or a catalogue of its own.
    extensions.injectHintResolutionRule(ChangeFeeds::new);
    // When targets of statements and columns are known, and before Spark rewrites what changes rows.
    extensions.injectPostHocResolutionRule(CatalogPlans::new);
    // When Spark has given up looking for names, and before it says so.
    extensions.injectPostHocResolutionRule(MissingTables::new);
    extensions.injectParser(StatementParser::of);
    return BoxedUnit.UNIT;
  }

  /** Whether a session has them: it has not if its Spark was started before the jar was there. */
  public static boolean areIn(SparkSession session) {
    var analyzer = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().analyzer();
    return CollectionConverters.asJava(analyzer.extendedResolutionRules()).stream().anyMatch(MappedReads.class::isInstance);
  }
}
