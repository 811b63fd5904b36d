package io.penstock.spark;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A Python process that a driver without Python has started, in the way in which spark-submit starts that of a PySpark
 * program. It works with the driver's Spark, and ends with it: its standard input ends then, however the driver ends.
 */
public final class PythonProcess {
  private static final Logger LOG = LoggerFactory.getLogger(PythonProcess.class);
  private static final String MODULE = "penstock.spark.attached";
  private static final long START_MAX_S = 120;
  private static final long END_MAX_S = 10;
  /** What would have PySpark look for a Spark elsewhere. */
  private static final Set<String> ELSEWHERE =
      Set.of("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED");
  /** Those that have not said yet that they are ready, by the secret of their connection. */
  private static final Map<String, PythonProcess> STARTING = new ConcurrentHashMap<>();
  /** By the path of Python. */
  private static final Map<String, PythonProcess> RUNNING = new ConcurrentHashMap<>();

  private final SparkContext context;
  private final Process process;
  private final Py4JServer server;
  private final CompletableFuture<LakeAnswerers> ready = new CompletableFuture<>();
  private final Map<List<String>, PlanDriver> answerers = new ConcurrentHashMap<>();
  private volatile String lastWords = "";

  private PythonProcess(SparkContext context, Process process, Py4JServer server) {
    this.context = context;
    this.process = process;
    this.server = server;
  }

  /**
   * The one that runs with a Python, which is started if there is none, or none any more.
   *
   * @param setting where the Python was named, for errors
   */
  static PythonProcess of(String python, String setting) {
    SparkContext context = SparkContext.getOrCreate();
    return RUNNING.compute(
        python,
        (path, before) -> {
          if (before != null && before.isThere() && before.context == context) {
            return before;
          }
          if (before != null) {
            before.end();
          }
          return started(context, path, setting);
        });
  }

  /** Called from the Python process, when it can answer. */
  public static void ready(String secret, LakeAnswerers lakes) {
    STARTING.get(secret).ready.complete(lakes);
  }

  /** What the Python process works with. */
  public static JavaSparkContext context() {
    return JavaSparkContext.fromSparkContext(SparkContext.getOrCreate());
  }

  /** Who answers for the lake of a server. */
  PlanDriver answerer(String address, String token) {
    return answerers.computeIfAbsent(List.of(address, token), one -> ready.join().of(address, token));
  }

  /** Whether it answers. That it has ended is known later than its connections are closed. */
  private boolean isThere() {
    try {
      return process.isAlive() && ready.join().isThere();
    } catch (RuntimeException gone) {
      LOG.info("the Python process does not answer any more: {}", gone.getMessage());
      return false;
    }
  }

  /** Whether it ends within seconds. Its connections are closed a moment before that: who lost one waits as long. */
  boolean endsSoon() {
    try {
      return process.waitFor(END_MAX_S, TimeUnit.SECONDS);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return !process.isAlive();
    }
  }

  private static PythonProcess started(SparkContext context, String python, String setting) {
    Py4JServer server = new Py4JServer(context.conf());
    String secret = server.secret();
    listen(server);
    PythonProcess made = null;
    try {
      made = new PythonProcess(context, process(python, server), server);
      STARTING.put(secret, made);
      made.readLines();
      CompletableFuture.anyOf(made.ready, made.process.onExit()).get(START_MAX_S, TimeUnit.SECONDS);
      if (made.ready.isDone()) {
        made.endWithContext();
        return made;
      }
      throw refused(python, setting, made.lastWords.isEmpty() ? "it ended" : made.lastWords);
    } catch (IOException | ExecutionException problem) {
      throw refused(python, setting, problem.getMessage());
    } catch (TimeoutException slow) {
      throw refused(python, setting, "it was not ready after " + START_MAX_S + " seconds");
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw refused(python, setting, "the statement was cancelled");
    } finally {
      STARTING.remove(secret);
      if (made == null) {
        server.shutdown();
      } else if (!made.ready.isDone()) {
        made.end();
      }
    }
  }

  private static JobRefused refused(String python, String setting, String why) {
    return new JobRefused(
        "the Python process '" + python + "' that the setting " + setting + " names could not be started: " + why);
  }

  /** Its threads find what this class finds, and keep no JVM alive that is done. */
  private static void listen(Py4JServer server) {
    Thread thread = new Thread(server::start, "penstock-python-gateway");
    thread.setDaemon(true);
    thread.setContextClassLoader(PythonProcess.class.getClassLoader());
    thread.start();
    try {
      thread.join();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private static Process process(String python, Py4JServer server) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(python, "-m", MODULE);
    Map<String, String> environment = builder.environment();
    environment.keySet().removeAll(ELSEWHERE);
    // The driver's own PySpark comes first, since it is of the same release.
    String inherited = environment.getOrDefault("PYTHONPATH", "");
    environment.put(
        "PYTHONPATH",
        PythonUtils.mergePythonPaths(
            CollectionConverters.asScala(List.of(PythonUtils.sparkPythonPath(), inherited)).toSeq()));
    environment.put("PYSPARK_GATEWAY_PORT", Integer.toString(server.getListeningPort()));
    environment.put("PYSPARK_GATEWAY_SECRET", server.secret());
    if (new File(python).isAbsolute()) {
      environment.putIfAbsent("PYSPARK_PYTHON", python);
    }
    return builder.redirectErrorStream(true).start();
  }

  /** What it prints goes to the log: spark-sql prints rows. */
  private void readLines() {
    Thread reader =
        new Thread(
            () -> {
              try (BufferedReader lines =
                  new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                  if (!line.isBlank()) {
                    lastWords = line.strip();
                    LOG.info("{}", line);
                  }
                }
              } catch (IOException ended) {
                LOG.debug("the output of the Python process ended", ended);
              }
            },
            "penstock-python-output");
    reader.setDaemon(true);
    reader.start();
  }

  private void endWithContext() {
    context.addSparkListener(
        new SparkListener() {
          @Override
          public void onApplicationEnd(SparkListenerApplicationEnd ended) {
            end();
          }
        });
  }

  private void end() {
    process.destroy();
    server.shutdown();
  }
}
