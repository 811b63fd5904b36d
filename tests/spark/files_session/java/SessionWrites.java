import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * A Spark driver without Python: each argument after the lake and a path is a write; prints what came
 * of it, and how many rows are read at the path in the end.
 */
public final class SessionWrites {
  public static void main(String[] arguments) {
    SparkSession spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.sources.commitProtocolClass", "io.penstock.spark.CommitProtocol")
            .config("spark.penstock.lake", arguments[0])
            .config("spark.penstock.tables", "{\"" + arguments[1] + "\": \"raw.events\"}")
            .getOrCreate();
    try {
      for (int at = 2; at < arguments.length; at++) {
        String[] one = arguments[at].split(",");
        System.out.println(arguments[at] + ": " + written(spark.range(0, 3, 1, 1).toDF(), one, arguments[1]));
      }
      System.out.println("read: " + spark.read().parquet(arguments[1]).count());
    } finally {
      spark.stop();
    }
  }

  private static String written(Dataset<Row> rows, String[] write, String path) {
    try {
      rows.write()
          .mode(write[0])
          .options(Map.of("penstock.table", "raw.events", "penstock.mode", write[1], "penstock.job_id", write[2]))
          .parquet(path);
      return "done";
    } catch (IllegalArgumentException refused) {
      return refused.getClass().getSimpleName() + " " + refused.getMessage().replace('\n', '|');
    }
  }
}
