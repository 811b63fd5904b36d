package io.penstock.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's parser, and before it the statements about branches, tags and transactions: each is rewritten to a CALL of a
 * procedure.
 *
 * <p>A proxy, since the interface has other methods in every Spark: those are the parser's below.
 */
final class StatementParser {
  private static final String CATALOG_SETTING = "spark.sql.catalog.";
  private static final String NAME = "(?!(?:IN|INTO|TO|FROM|ON|LIMIT|IF)\\s)(`[^`]+`|'[^']*'|[\\w./~^*:@+-]+)";
  private static final String IN = "(?:\\s+IN\\s+(?<catalog>`[^`]+`|\\w+))?";

  private static final String PART = "(?:`(?:[^`]|``)+`|\\w+)";
  private static final Pattern HISTORY =
      Pattern.compile(
          "(?:DESCRIBE|DESC)\\s+HISTORY\\s+(" + PART + "(?:\\." + PART + ")*)(?:\\s+LIMIT\\s+(\\d+))?",
          Pattern.CASE_INSENSITIVE);

  /** As newer releases of Spark read it by themselves. */
  private static final Pattern EVOLUTION =
      Pattern.compile(
          "INSERT\\s+WITH\\s+SCHEMA\\s+EVOLUTION\\s+(INTO|OVERWRITE)(?:\\s+TABLE)?\\s+(" + PART + "(?:\\." + PART + ")*)",
          Pattern.CASE_INSENSITIVE);

  private static final List<Statement> STATEMENTS =
      List.of(
          new Statement("create_branch", "CREATE BRANCH( IF NOT EXISTS)? " + NAME + "(?: FROM " + NAME + ")?" + IN, "if_not_exists", "name", "from_ref"),
          new Statement("create_branch", "CREATE BRANCH( IF NOT EXISTS)? " + NAME + IN + "(?: FROM " + NAME + ")?", "if_not_exists", "name", "", "from_ref"),
          new Statement("create_tag", "CREATE TAG( IF NOT EXISTS)? " + NAME + "(?: FROM " + NAME + ")?" + IN, "if_not_exists", "name", "from_ref"),
          new Statement("create_tag", "CREATE TAG( IF NOT EXISTS)? " + NAME + IN + "(?: FROM " + NAME + ")?", "if_not_exists", "name", "", "from_ref"),
          new Statement("drop_branch", "DROP BRANCH( IF EXISTS)? " + NAME + "(?: AT " + NAME + ")?" + IN, "if_exists", "name", "expected"),
          new Statement("drop_tag", "DROP TAG( IF EXISTS)? " + NAME + "(?: AT " + NAME + ")?" + IN, "if_exists", "name", "expected"),
          new Statement("assign_branch", "ASSIGN BRANCH " + NAME + " TO " + NAME + IN, "name", "to_ref"),
          new Statement("assign_tag", "ASSIGN TAG " + NAME + " TO " + NAME + IN, "name", "to_ref"),
          new Statement("use_reference", "USE REFERENCE " + NAME + IN, "name"),
          new Statement("show_reference", "SHOW REFERENCE" + IN),
          new Statement("show_references", "(?:SHOW|LIST) REFERENCES" + IN),
          new Statement("show_log", "SHOW LOG(?: " + NAME + ")?" + IN + "(?: LIMIT (\\d+))?", "ref", "", "#limit"),
          new Statement("show_diff", "SHOW DIFF " + NAME + " TO " + NAME + IN, "from_ref", "to_ref"),
          new Statement("show_conflicts", "SHOW CONFLICTS " + NAME + "(?: INTO " + NAME + ")?" + IN, "branch", "into"),
          new Statement("merge_branch", "MERGE BRANCH " + NAME + "(?: INTO " + NAME + ")?" + IN, "branch", "into"),
          new Statement("revert", "REVERT " + NAME + "(?: ON " + NAME + ")?" + IN, "ref", "branch"),
          new Statement("publish", "PUBLISH(?: BRANCH)? " + NAME + "(?: INTO " + NAME + ")?" + IN, "branch", "into"),
          new Statement("begin_transaction", "BEGIN TRANSACTION" + IN),
          new Statement("commit_transaction", "COMMIT(?: TRANSACTION)?" + IN),
          new Statement("rollback_transaction", "ROLLBACK(?: TRANSACTION)?" + IN));

  /** How they are written, for those who begin one and do not end it. */
  private static final List<String> FORMS =
      List.of(
          "CREATE BRANCH [IF NOT EXISTS] name [IN catalog] [FROM revision]",
          "CREATE TAG [IF NOT EXISTS] name [IN catalog] [FROM revision]",
          "DROP BRANCH [IF EXISTS] name [AT commit] [IN catalog]",
          "DROP TAG [IF EXISTS] name [AT commit] [IN catalog]",
          "ASSIGN BRANCH name TO revision [IN catalog]",
          "ASSIGN TAG name TO revision [IN catalog]",
          "USE REFERENCE revision [IN catalog]",
          "SHOW REFERENCES [IN catalog]",
          "SHOW REFERENCE [IN catalog]",
          "LIST REFERENCES [IN catalog]",
          "SHOW LOG [revision] [IN catalog] [LIMIT number]",
          "SHOW DIFF revision TO revision [IN catalog]",
          "SHOW CONFLICTS branch [INTO branch] [IN catalog]",
          "MERGE BRANCH name [INTO branch] [IN catalog]",
          "REVERT revision [ON branch] [IN catalog]",
          "PUBLISH branch [INTO branch] [IN catalog]",
          "BEGIN TRANSACTION [IN catalog]",
          "COMMIT [TRANSACTION] [IN catalog]",
          "ROLLBACK [TRANSACTION] [IN catalog]",
          "DESCRIBE HISTORY table [LIMIT number]");

  private StatementParser() {}

  /** A parser that knows these statements, too. */
  @SuppressWarnings("unchecked") // a name is a list of its parts
  static ParserInterface of(SparkSession session, ParserInterface below) {
    InvocationHandler handler =
        (proxy, method, given) -> {
          if (given != null && method.getName().startsWith("parsePlan") && given[0] instanceof String text) {
            given[0] = rewritten(session, below, text);
          }
          boolean isName = method.getName().equals("parseMultipartIdentifier");
          if (isName && isRoot(session, given[0])) {
            return scala.collection.immutable.Nil$.MODULE$;
          }
          try {
            Object parsed = method.invoke(below, given);
            return isName && Callers.isWrite() ? ofOwnCatalog(session, (Seq<String>) parsed) : parsed;
          } catch (InvocationTargetException problem) {
            throw problem.getCause() instanceof ParseException && given[0] instanceof String text
                ? explained(text, problem.getCause())
                : problem.getCause();
          }
        };
    return (ParserInterface)
        Proxy.newProxyInstance(StatementParser.class.getClassLoader(), new Class<?>[] {ParserInterface.class}, handler);
  }

  /**
   * A name with its catalogue, if that is a lake's. Spark looks up which one a writer of a DataFrame means by the
   * settings of the session that the thread has active, which is another one where there are several.
   */
  private static Seq<String> ofOwnCatalog(SparkSession session, Seq<String> name) {
    var own = (org.apache.spark.sql.classic.SparkSession) session;
    var active = org.apache.spark.sql.classic.SparkSession$.MODULE$.getActiveSession();
    if (active.isDefined() && active.get() == own) {
      return name;
    }
    return own.withActive(
        () -> {
          String current = CatalogNames.current(own).name();
          List<String> parts = new ArrayList<>(CollectionConverters.asJava(name));
          if (!isLake(session, current) || parts.size() > 1 && CatalogNames.isCatalog(own, parts.get(0))) {
            return name;
          }
          if (parts.size() == 1) {
            parts.addAll(0, CatalogNames.currentNamespace(own));
          }
          parts.add(0, current);
          return CollectionConverters.asScala(parts).toSeq();
        });
  }

  /** Whether listTables() means what a lake has in no namespace: Spark cannot say so by a name. */
  private static boolean isRoot(SparkSession session, Object name) {
    return "".equals(name) && Callers.isListing() && isLake(session, session.catalog().currentCatalog());
  }

  private static String plain(String text) {
    return text.replaceAll("(?m)^\\s*--.*$", "").strip().replaceAll("\\s*;$", "");
  }

  /** The error for a text that nobody can read: if it begins like a statement of ours, it says how that is written. */
  private static Throwable explained(String text, Throwable problem) {
    String upper = plain(text).replaceAll("\\s+", " ").toUpperCase(Locale.ROOT) + " ";
    upper = upper.replaceAll("^(SHOW|LIST) (BRANCHES|BRANCH|TAGS|TAG) ", "SHOW REFERENCES ");
    for (String form : FORMS) {
      String words = form.split(" (?=[\\[a-z])")[0];
      if (upper.startsWith(words + " ")) {
        return new StatementRefused(
            "this statement is written as " + form + "; names with other characters than letters, digits and"
                + " ./_:^~*@+- are put between backquotes");
      }
    }
    return problem;
  }

  private static String rewritten(SparkSession session, ParserInterface below, String text) throws ParseException {
    String plain = plain(text);
    for (Statement statement : STATEMENTS) {
      Matcher found = statement.pattern.matcher(plain);
      if (found.matches()) {
        String catalog = found.group("catalog");
        return statement.call(catalog == null ? usual(session) : known(session, catalog), found);
      }
    }
    Matcher evolution = EVOLUTION.matcher(plain);
    if (!SparkVersion.HAS_WIDENING_INSERTS && evolution.lookingAt()) {
      String named = "INSERT " + evolution.group(1) + " " + evolution.group(2);
      return named + " WITH ('mergeSchema' = 'true')" + plain.substring(evolution.end());
    }
    Matcher history = HISTORY.matcher(plain);
    return history.matches() ? history(session, below, history, text) : text;
  }

  /** DESCRIBE HISTORY of a lake's table; the statement as it is if the table is somebody else's. */
  private static String history(SparkSession session, ParserInterface below, Matcher found, String text)
      throws ParseException {
    List<String> names = new ArrayList<>(CollectionConverters.asJava(below.parseMultipartIdentifier(found.group(1))));
    String catalog = session.catalog().currentCatalog();
    if (names.size() > 1 && isLake(session, names.get(0))) {
      catalog = names.remove(0);
    } else if (names.size() == 1 && isLake(session, catalog)) {
      names.addAll(0, CatalogNames.currentNamespace((org.apache.spark.sql.classic.SparkSession) session));
    }
    if (!isLake(session, catalog)) {
      return text;
    }
    List<String> elements = names.stream().map(one -> '"' + one.replace("\"", "\"\"") + '"').toList();
    String limit = found.group(2) == null ? "" : ", limit => " + found.group(2);
    return "CALL " + quoted(catalog) + ".system.history(table => " + text(String.join(".", elements)) + limit + ")";
  }

  private static boolean isLake(SparkSession session, String catalog) {
    return SparkVersion.isCatalog(session.conf().get(CATALOG_SETTING + catalog, ""));
  }

  private static String text(String plain) {
    return "'" + plain.replace("\\", "\\\\").replace("'", "\\'") + "'";
  }

  /** A catalogue that a statement names, which has to be a lake's. */
  private static String known(SparkSession session, String named) throws ParseException {
    String name = named.startsWith("`") ? named.substring(1, named.length() - 1) : named;
    List<String> found = lakes(session);
    if (isLake(session, name) || found.isEmpty()) {
      return named;
    }
    throw new StatementRefused(
        "'" + name + "' is no catalog of a lake; in this session there is " + String.join(", ", found));
  }

  /** The catalogue that is meant where none is named: the current one if it is a lake's, else the only one. */
  private static String usual(SparkSession session) throws ParseException {
    String current = session.catalog().currentCatalog();
    if (isLake(session, current)) {
      return quoted(current);
    }
    List<String> found = lakes(session);
    if (found.size() == 1) {
      return quoted(found.get(0));
    }
    throw new StatementRefused(
        found.isEmpty()
            ? "this session has no catalog of a lake: set spark.sql.catalog.lake to " + SparkVersion.CATALOG
            : "say which catalog is meant, as in IN " + found.get(0) + "; there are " + String.join(", ", found));
  }

  private static List<String> lakes(SparkSession session) {
    List<String> found = new ArrayList<>();
    session.conf().getAll().foreach(
        one -> {
          if (one._1().startsWith(CATALOG_SETTING) && SparkVersion.isCatalog(one._2())) {
            found.add(one._1().substring(CATALOG_SETTING.length()));
          }
          return null;
        });
    return found;
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** A statement: the procedure, and the parameters that the groups of its pattern stand for, in their order. */
  private static final class Statement {
    private final String procedure;
    private final Pattern pattern;
    private final String[] parameters;

    Statement(String procedure, String pattern, String... parameters) {
      this.procedure = procedure;
      this.pattern = Pattern.compile(pattern.replace(" ", "\\s+"), Pattern.CASE_INSENSITIVE);
      this.parameters = parameters;
    }

    String call(String catalog, Matcher found) {
      List<String> arguments = new ArrayList<>();
      for (int at = 0; at < parameters.length; at++) {
        String text = found.group(at + 1);
        String parameter = parameters[at];
        if (text == null || parameter.isEmpty()) { // the catalogue, where it stands between others
          continue;
        }
        if (parameter.startsWith("if_")) {
          arguments.add(parameter + " => true");
        } else if (parameter.startsWith("#")) {
          arguments.add(parameter.substring(1) + " => " + text);
        } else {
          arguments.add(parameter + " => " + literal(text));
        }
      }
      return "CALL " + catalog + ".system." + procedure + "(" + String.join(", ", arguments) + ")";
    }

    private static String literal(String name) {
      boolean isQuoted = name.startsWith("`") || name.startsWith("'");
      String text = isQuoted ? name.substring(1, name.length() - 1) : name;
      return StatementParser.text(text);
    }
  }
}
