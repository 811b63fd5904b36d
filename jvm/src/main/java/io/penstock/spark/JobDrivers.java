package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.internal.SQLConf;

/** The Python processes that decide for sessions of this JVM, by the id of the lake that they have open. */
public final class JobDrivers {
  static final String LAKE = "spark.penstock.lake";
  static final String LAKE_ID = "spark.penstock.lake.id";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, JobDriver> BY_LAKE = new ConcurrentHashMap<>();

  private JobDrivers() {}

  /** Called from Python, for each lake that it makes a session for. The latest one counts. */
  public static void register(String lakeId, JobDriver driver) {
    BY_LAKE.put(lakeId, driver);
  }

  /** The one for this thread's session: Python where there is one, else the server that the session names. */
  static JobDriver current() {
    JobDriver driver = BY_LAKE.get(SQLConf.get().getConfString(LAKE_ID, ""));
    if (driver != null) {
      return driver;
    }
    String address = SQLConf.get().getConfString(LAKE, "");
    if (address.startsWith("http://") || address.startsWith("https://")) {
      return new ServerDriver(address, System.getenv("PENSTOCK_TOKEN"));
    }
    throw new JobRefused(
        "a table of a lake is read and written by sessions that know the lake: make the session by penstock.spark.session(lake), or"
            + " name a Penstock server in its setting "
            + LAKE);
  }

  /** The answer to a step. */
  static JsonNode ask(JobDriver driver, String step, Object request) {
    JsonNode answer;
    try {
      answer = JSON.readTree(driver.answer(step, JSON.writeValueAsString(request)));
    } catch (IOException | RuntimeException problem) {
      if (problem instanceof JobRefused refused) {
        throw refused;
      }
      String what = step.equals("read") ? "read" : "write";
      throw new JobRefused(
          "nobody answered who decides on this " + what + " (" + step + "): " + problem.getMessage(), problem);
    }
    if (answer.has("error")) {
      throw new JobRefused(answer.get("error").asText(), answer.path("details").asText());
    }
    return answer;
  }
}
