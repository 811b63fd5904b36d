package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** The Python processes that decide for sessions of this JVM, by the id of the lake that they have open. */
public final class JobDrivers {
  static final String LAKE = "spark.penstock.lake";
  static final String LAKE_ID = "spark.penstock.lake.id";
  /** What brings Python to a driver. */
  static final String WITH_PYTHON =
      "use PySpark, with penstock.spark.session(lake), or name a Python that has Penstock in the catalog's setting"
          + " 'python' (spark.sql.catalog.<name>.python)";
  private static final Set<String> WRITES = Set.of("check", "begin", "commit", "abort", "write", "batch");
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, JobDriver> BY_LAKE = new ConcurrentHashMap<>();
  private static final Map<List<String>, ServerDriver> SERVERS = new ConcurrentHashMap<>();
  private static final ThreadLocal<JobDriver> CHOSEN = new ThreadLocal<>();

  private JobDrivers() {}

  /** Called from Python, for each lake that it makes a session for. The latest one counts. */
  public static void register(String lakeId, JobDriver driver) {
    BY_LAKE.put(lakeId, driver);
  }

  /** The one for this thread's session: Python where there is one, else the server that the session names. */
  static JobDriver current() {
    if (CHOSEN.get() != null) {
      return CHOSEN.get();
    }
    return of(SQLConf.get().getConfString(LAKE_ID, ""), SQLConf.get().getConfString(LAKE, ""), "");
  }

  /**
   * The one for a lake: Python where there is one, else the server at the address.
   *
   * @param token what the server knows the caller by; empty for that of the environment
   */
  static JobDriver of(String lakeId, String address, String token) {
    JobDriver driver = BY_LAKE.get(lakeId);
    if (driver != null) {
      return driver;
    }
    if (address.startsWith("http://") || address.startsWith("https://")) {
      return SERVERS.computeIfAbsent(List.of(address, token), ServerDriver::new);
    }
    throw new JobRefused(
        "a table of a lake is read and written by sessions that know the lake: make the session by penstock.spark.session(lake), or"
            + " name a Penstock server in its setting "
            + LAKE);
  }

  /** Have somebody decide on what this thread reads and writes meanwhile, whatever its session names. */
  static <T> T during(JobDriver driver, Supplier<T> work) {
    JobDriver before = CHOSEN.get();
    CHOSEN.set(driver);
    try {
      return work.get();
    } finally {
      CHOSEN.set(before);
    }
  }

  /** The one that was chosen for what this thread does now; null if none was. */
  static JobDriver chosen() {
    return CHOSEN.get();
  }

  /** The answer to a step. */
  static JsonNode ask(JobDriver driver, String step, Object request) {
    return checked(asked(step, request, text -> driver.answer(step, text)));
  }

  /** The answer to a question of a catalogue, which may be an error: also then it can have news for the session. */
  static JsonNode question(JobDriver driver, SparkSession session, String step, Object request) {
    return asked(
        step,
        request,
        text ->
            driver instanceof PlanDriver python
                ? (String) python.act(step, session, text, List.of())
                : driver.answer(step, text));
  }

  private static JsonNode asked(String step, Object request, UnaryOperator<String> driver) {
    try {
      return JSON.readTree(driver.apply(JSON.writeValueAsString(request)));
    } catch (IOException | RuntimeException problem) {
      if (problem instanceof JobRefused refused) {
        throw refused;
      }
      throw unanswered(step, problem);
    }
  }

  /**
   * Have a step of a statement done by the driver's Python process, which has plans.
   *
   * @return the answer: a DataFrame, or JSON
   */
  static Object act(JobDriver decider, SparkSession session, String step, Object request, List<Object> parts) {
    if (!(decider instanceof PlanDriver driver)) {
      throw new JobRefused(
          "this Spark driver has no Python, which " + statement(step) + " of a lake's tables needs: " + WITH_PYTHON);
    }
    try {
      Object answer = driver.act(step, session, JSON.writeValueAsString(request), parts);
      return answer instanceof String text ? checked(JSON.readTree(text)) : answer;
    } catch (IOException | RuntimeException problem) {
      if (problem instanceof JobRefused refused) {
        throw refused;
      }
      throw unanswered(step, problem);
    }
  }

  /** What a step is called in SQL. */
  private static String statement(String step) {
    return step.equals("widen") ? "WITH SCHEMA EVOLUTION" : step.toUpperCase(Locale.ROOT) + " of rows";
  }

  private static JobRefused unanswered(String step, Exception problem) {
    String what = Set.of("read", "plan", "stream").contains(step) ? "read" : WRITES.contains(step) ? "write" : "statement";
    return new JobRefused(
        "nobody answered who decides on this " + what + " (" + step + "): " + problem.getMessage(), problem);
  }

  /** The answer, if it is none that says why there is none. */
  static JsonNode checked(JsonNode answer) {
    if (answer.has("error")) {
      throw new JobRefused(answer.get("error").asText(), answer.path("details").asText());
    }
    return answer;
  }
}
