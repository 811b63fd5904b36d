package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's side of a write to a table by code that knows only its session: Spark's path or an option names the
 * table. Who decides is told all that is known, at every step: this is all there is to remember.
 */
final class SessionJob {
  private static final Logger LOG = LoggerFactory.getLogger(SessionJob.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final ObjectNode facts;
  private JobDriver driver;
  private JobRefused refusal;
  private JsonNode begun;

  private SessionJob(ObjectNode facts) {
    this.facts = facts;
  }

  /**
   * The job of a write that this thread is about to begin.
   *
   * <p>One that may not be done is refused when it begins, where Spark shows users the message as it is; here only if
   * Spark would not let it begin at all.
   *
   * @return null if it is none of a lake's tables
   */
  static SessionJob of(String jobId, String path) {
    WriteFacts found = WriteFacts.of(path);
    Map<String, String> options = found.options();
    boolean isAsked =
        options.keySet().stream().anyMatch(CommitProtocol::isOption)
            || !WriteFacts.areUsual(WriteFacts.settings(SQLConf.get()));
    if (!isAsked || options.containsKey(CommitProtocol.ATTEMPT)) {
      return null;
    }
    ObjectNode facts = JSON.valueToTree(found.all());
    facts.put("job", jobId);
    facts.put("attempt", UUID.randomUUID().toString().replace("-", ""));
    SessionJob job = new SessionJob(facts);
    try {
      job.driver = JobDrivers.current();
      return job.ask("check", Map.of()).path("is_ours").asBoolean() ? job : null;
    } catch (JobRefused refused) {
      if (facts.path("is_skipped").asBoolean()) {
        throw refused;
      }
      job.refusal = refused;
      return job;
    }
  }

  /** Why it may not be done. */
  JobRefused refusal() {
    String path = facts.path("path").asText();
    return refusal != null ? refusal : new JobRefused("Spark cannot write to " + path + " like that");
  }

  /** Let it begin; returns where its files go. */
  Place begin() {
    if (refusal != null) {
      throw refusal;
    }
    begun = ask("begin", Map.of());
    String others = begun.path("others").asText();
    if (!others.isEmpty()) {
      LOG.warn(others);
    }
    return new Place(begun.path("folder").asText(), begun.path("subdirectory").asText());
  }

  /**
   * Have its files committed.
   *
   * @param lines what each task has told: lines of JSON
   * @param rows how many there are in all files
   * @return whether the files are nobody's, although all is well: there are no rows, or an earlier attempt has landed
   */
  boolean commit(List<byte[]> lines, long rows, Configuration configuration) {
    List<WrittenFile> files = new ArrayList<>();
    Map<String, Object> told = new HashMap<>();
    told.put("rows", rows);
    try {
      for (byte[] some : lines) {
        JSON.readerFor(WrittenFile.class).<WrittenFile>readValues(some).forEachRemaining(files::add);
      }
      if (begun.hasNonNull("sent_max") && files.size() > begun.get("sent_max").asInt()) {
        Path folder = new Path(begun.path("folder").asText());
        told.put("listed", FileList.write(files, folder, configuration));
      } else {
        told.put("files", files);
      }
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    return ask("commit", told).path("remove").asBoolean();
  }

  /** Have it never land; returns whether that is certain, so that its files are nobody's. */
  boolean abort() {
    try {
      return begun != null && ask("abort", Map.of()).path("remove").asBoolean();
    } catch (JobRefused unanswered) {
      // Why the job failed is what the user is to be told.
      LOG.warn("the files of job {} are left for a sweep: {}", facts.path("job"), unanswered.getMessage());
      return false;
    }
  }

  private JsonNode ask(String step, Map<String, Object> told) {
    Map<String, Object> all = new HashMap<>(told);
    all.put("facts", facts);
    all.put("begun", begun);
    return JobDrivers.ask(driver, step, all);
  }

  /** Where tasks write: a folder, and a subdirectory of it that all of their files go into. */
  record Place(String folder, String subdirectory) {}
}
