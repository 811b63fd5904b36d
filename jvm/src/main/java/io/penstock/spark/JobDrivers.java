package io.penstock.spark;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.internal.SQLConf;

/** The Python processes that decide for sessions of this JVM, by the id of the lake that they have open. */
public final class JobDrivers {
  private static final String LAKE = "spark.penstock.lake";
  private static final String LAKE_ID = "spark.penstock.lake.id";
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
        "a write to a table of a lake needs somebody who commits it: make the session by penstock.spark.session(lake), or"
            + " name a Penstock server in its setting "
            + LAKE);
  }
}
