package io.penstock.spark;

import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.sql.SparkSession;

/**
 * Python for a driver that has none: a process that is started when it is first asked, and again if it has ended since. It
 * answers for the lake of a server, as the Python of a PySpark program does.
 */
final class AttachedPython implements PlanDriver {
  private final String python;
  private final String setting;
  private final String address;
  private final String token;

  /**
   * Starts nothing yet.
   *
   * @param setting the setting that names the Python, for errors
   */
  AttachedPython(String python, String setting, String address, String token) {
    this.python = python;
    this.setting = setting;
    this.address = address;
    this.token = token;
  }

  @Override
  public String answer(String step, String request) {
    return asked(step, one -> one.answer(step, request));
  }

  @Override
  public Object act(String step, SparkSession session, String request, List<Object> parts) {
    return asked(step, one -> one.act(step, session, request, parts));
  }

  private <T> T asked(String step, java.util.function.Function<PlanDriver, T> question) {
    PythonProcess process = PythonProcess.of(python, setting);
    Supplier<T> asking = () -> question.apply(process.answerer(address, token));
    try {
      // What Python reads and writes on the way is this lake's, whatever the session names.
      return JobDrivers.during(this, asking);
    } catch (RuntimeException problem) {
      if (!process.endsSoon()) {
        throw problem;
      }
      throw new JobRefused(
          "the Python process of this driver ended while it was asked (" + step + "); whether a statement was done that"
              + " changes something, SHOW LOG tells; the next statement starts the process again",
          problem);
    }
  }
}
