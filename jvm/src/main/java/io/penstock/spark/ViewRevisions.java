package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.AsOfTimestamp;
import org.apache.spark.sql.catalyst.analysis.AsOfVersion;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.TimeTravelSpec;
import org.apache.spark.sql.catalyst.analysis.TimeTravelSpec$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Views at a revision. What the text of a view reads of the same lake is then of the commit that the view is of.
 *
 * <p>Spark knows of no views at a version, and keeps what a query reads by its name alone. So a view that a statement
 * names with a version or a time is looked up under a name with its commit; and so are, while a view at a revision is
 * expanded, all names of its lake without a revision.
 */
final class ViewRevisions extends Rule<LogicalPlan> {
  private static final String AT = "@";
  /**
   * How the setting begins by which a view that is expanded tells its commit, for each catalogue. It is none that a session
   * can have: those have a lake's own beginning.
   */
  private static final String SETTING = "penstock.view.";

  private final org.apache.spark.sql.classic.SparkSession session;
  private final boolean isOfTexts;

  /**
   * A rule for names in texts of views, or for those of statements.
   *
   * @param isOfTexts of texts, before Spark looks for a name; otherwise of statements, when it has found no table
   */
  ViewRevisions(SparkSession session, boolean isOfTexts) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
    this.isOfTexts = isOfTexts;
  }

  /** The setting that has the commit of a view, while its text is analysed. */
  static String setting(PenstockCatalog catalog) {
    return SETTING + catalog.name();
  }

  /** Whether a name has a revision, so that it does not stand for what is at the session's reference. */
  static boolean hasRevision(Identifier ident) {
    return ident.name().contains(AT);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(() -> plan.transformUp(new Names()));
  }

  private final class Names extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof UnresolvedRelation || node instanceof RelationTimeTravel && !isOfTexts;
    }

    @Override
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      LogicalPlan found = null;
      if (node instanceof RelationTimeTravel travel && travel.relation() instanceof UnresolvedRelation relation) {
        found = ofTravel(travel, relation);
      } else if (node instanceof UnresolvedRelation relation) {
        found = isOfTexts ? ofText(relation) : ofOptions(relation);
      }
      @SuppressWarnings("unchecked")
      B result = found == null ? otherwise.apply(node) : (B) found;
      return result;
    }
  }

  /** A name in the text of a view that is read at a revision; null if it is none, or is to stay as it is. */
  private LogicalPlan ofText(UnresolvedRelation relation) {
    List<String> home = CollectionConverters.asJava(AnalysisContext.get().catalogAndNamespace());
    if (home.isEmpty()) {
      return null;
    }
    List<String> name = whole(relation, home);
    PenstockCatalog catalog = CatalogNames.lakeOf(session, name);
    if (catalog == null || hasRevision(CatalogNames.identifier(session, name))) {
      return null;
    }
    String commit = SQLConf.get().getConfString(setting(catalog), "");
    return commit.isEmpty() ? null : named(relation, name, commit);
  }

  /** A view that a statement names with a version or a time; null if it is none. Of tables Spark asks by itself. */
  private LogicalPlan ofTravel(RelationTimeTravel travel, UnresolvedRelation relation) {
    if (travel.timestamp().isDefined() && !travel.timestamp().get().resolved()) {
      return null;
    }
    String zone = SQLConf.get().sessionLocalTimeZone();
    return ofView(relation, TimeTravelSpec$.MODULE$.create(travel.timestamp(), travel.version(), zone));
  }

  /** The same where a program says the version or the time by an option of its reader. */
  private LogicalPlan ofOptions(UnresolvedRelation relation) {
    String time = SQLConf.get().getConf(SQLConf.TIME_TRAVEL_TIMESTAMP_KEY());
    String version = SQLConf.get().getConf(SQLConf.TIME_TRAVEL_VERSION_KEY());
    String zone = SQLConf.get().sessionLocalTimeZone();
    LogicalPlan found =
        ofView(relation, TimeTravelSpec$.MODULE$.fromOptions(relation.options(), time, version, zone));
    if (found == null) {
      return null;
    }
    Map<String, String> others = new HashMap<>(relation.options().asCaseSensitiveMap());
    others.keySet().removeIf(one -> one.equalsIgnoreCase(time) || one.equalsIgnoreCase(version));
    return with((UnresolvedRelation) found, "options", new CaseInsensitiveStringMap(others));
  }

  private LogicalPlan ofView(UnresolvedRelation relation, Option<TimeTravelSpec> spec) {
    if (spec.isEmpty()) {
      return null;
    }
    List<String> name = whole(relation, CollectionConverters.asJava(AnalysisContext.get().catalogAndNamespace()));
    PenstockCatalog catalog = CatalogNames.lakeOf(session, name);
    if (catalog == null || !catalog.hasViews()) {
      return null;
    }
    Map<String, Object> request = new HashMap<>();
    if (spec.get() instanceof AsOfVersion version) {
      request.put("revision", version.version());
    } else if (spec.get() instanceof AsOfTimestamp time) {
      request.put("time_us", time.timestamp());
    }
    try {
      JsonNode answer = catalog.find(CatalogNames.identifier(session, name), request);
      if (!answer.hasNonNull("view")) {
        return null;
      }
      String commit = answer.path("pin").path("commit").asText();
      MappedReads.pinned().put(commit, answer.path("pin"));
      return named(relation, name, commit);
    } catch (NoSuchTableException absent) {
      return null; // Spark says so
    }
  }

  /** A name with its catalogue, as Spark looks it up in the text of a view. */
  private List<String> whole(UnresolvedRelation relation, List<String> home) {
    List<String> name = new ArrayList<>(CollectionConverters.asJava(relation.multipartIdentifier()));
    if (home.isEmpty()) {
      return name;
    }
    if (name.size() == 1) {
      name.addAll(0, home);
    } else if (!CatalogNames.isCatalog(session, name.get(0))) {
      name.add(0, home.get(0));
    }
    return name;
  }

  private static LogicalPlan named(UnresolvedRelation relation, List<String> name, String commit) {
    List<String> parts = new ArrayList<>(name);
    String last = parts.get(parts.size() - 1);
    int at = last.lastIndexOf(AT);
    parts.set(parts.size() - 1, (at < 0 ? last : last.substring(0, at)) + AT + commit);
    return with(relation, "multipartIdentifier", CollectionConverters.asScala(parts).toSeq());
  }

  private static UnresolvedRelation with(UnresolvedRelation relation, String part, Object value) {
    try {
      return Copies.with(relation, part, value);
    } catch (ReflectiveOperationException another) {
      throw new JobRefused("this release of Spark has no views of a lake at a revision", another);
    }
  }
}
