package faults;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.MapOutputTrackerWorker;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.shuffle.MetadataFetchFailedException;
import org.apache.spark.util.TaskCompletionListener;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What goes wrong in tasks. A job says it in its property {@value #PROPERTY}: "POINT DEED TASK ATTEMPTS FILE", several
 * of them with semicolons between. A fault is for a task's first attempts only, as many as it says, when its stage is
 * tried for the first time.
 *
 * <p>The points, in the order in which a task comes to them: start (nothing is set up yet; here it cannot fail), create
 * (its file is there, with no row), middle and last (of its rows), close, closed (before it is committed), commit
 * (while it is), committed (the driver does not know yet). The deeds: fail; die, as by a kill of the executor; fetch,
 * to fail because the task has lost what another stage gave it, so that its stage is tried again; wait, having made
 * FILE.0 to say that the first attempt has come there, until there is a FILE.go, whoever interrupts. That somebody did
 * is said by FILE.0.interrupted.
 */
public final class Faults implements SparkPlugin {
  static final String PROPERTY = "faults";

  private static final long LOOK_AGAIN_MS = 20;

  /** For rows, by Spark's java_method. Gives back what it is given. */
  public static String row(String point) throws IOException {
    reach(point);
    return point;
  }

  /** A task is at a point. In a driver nothing ever happens. */
  static void reach(String point) throws IOException {
    TaskContext task = TaskContext.get();
    String faults = task == null ? null : task.getLocalProperty(PROPERTY);
    for (String fault : faults == null || faults.isEmpty() ? new String[0] : faults.split(";")) {
      String[] words = fault.split(" ");
      boolean isHere =
          words[0].equals(point) && Integer.parseInt(words[2]) == task.partitionId() && task.stageAttemptNumber() == 0;
      if (isHere && task.attemptNumber() < Integer.parseInt(words[3])) {
        happen(words[1], point, words.length > 4 ? words[4] : "", task.attemptNumber());
      }
    }
  }

  private static void happen(String deed, String point, String file, int attempt) throws IOException {
    switch (deed) {
      case "fail" -> throw new IOException("a fault at " + point);
      case "die" -> Runtime.getRuntime().halt(137);
      case "fetch" -> throw new IOException(lostShuffle());
      case "wait" -> waitFor(Path.of(file + "." + attempt), Path.of(file + ".go"));
      default -> throw new IllegalArgumentException(deed);
    }
  }

  /** Where there is one, Spark takes whatever the task fails with for it. */
  private static Exception lostShuffle() {
    var known = ((MapOutputTrackerWorker) SparkEnv.get().mapOutputTracker()).mapStatuses().keySet();
    int newest = CollectionConverters.asJava(known).stream().mapToInt(id -> (Integer) (Object) id).max().orElseThrow();
    return new MetadataFetchFailedException(newest, TaskContext.get().partitionId(), "a fault");
  }

  private static void note(Path event) throws IOException {
    if (!Files.exists(event)) {
      Files.createFile(event);
    }
  }

  private static void waitFor(Path reached, Path go) throws IOException {
    note(reached);
    // A test that is over has removed its files: nobody will let the attempt go, and it would keep its core for good.
    while (!Files.exists(go) && Files.exists(reached)) {
      try {
        Thread.sleep(LOOK_AGAIN_MS);
      } catch (InterruptedException asked) {
        // An attempt that nobody can end, such as one behind a network that is cut.
        note(Path.of(reached + ".interrupted"));
      }
    }
  }

  @Override
  public DriverPlugin driverPlugin() {
    return null;
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void onTaskStart() {
        reachNow("start");
        // It is called when the writer has committed, before the executor tells the driver.
        TaskContext.get().addTaskCompletionListener((TaskCompletionListener) task -> reachNow("committed"));
      }
    };
  }

  private static void reachNow(String point) {
    try {
      reach(point);
    } catch (IOException fault) {
      throw new UncheckedIOException(fault);
    }
  }
}
