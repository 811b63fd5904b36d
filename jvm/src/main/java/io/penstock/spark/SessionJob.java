package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.UUID;
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
    boolean isAsked = options.containsKey(CommitProtocol.TABLE) || !WriteFacts.tables().isEmpty();
    if (!isAsked || options.containsKey(CommitProtocol.JOB)) {
      return null;
    }
    ObjectNode facts = JSON.valueToTree(found.all());
    facts.put("job", jobId);
    facts.put("attempt", UUID.randomUUID().toString().replace("-", ""));
    SessionJob job = new SessionJob(facts);
    try {
      job.driver = JobDrivers.current();
      return job.ask("check", "").path("is_ours").asBoolean() ? job : null;
    } catch (JobRefused refused) {
      if (facts.path("is_skipped").asBoolean()) {
        throw refused;
      }
      job.refusal = refused;
      return job;
    }
  }

  /** Let it begin; returns where its files go. */
  Place begin() {
    if (refusal != null) {
      throw refusal;
    }
    begun = ask("begin", "");
    return new Place(begun.path("folder").asText(), begun.path("subdirectory").asText());
  }

  /**
   * Have its files committed.
   *
   * @param lines what each task has told: lines of JSON
   * @return whether the files are nobody's, although all is well: an earlier attempt has landed
   */
  boolean commit(List<byte[]> lines) {
    StringBuilder files = new StringBuilder();
    for (byte[] some : lines) {
      files.append(new String(some, StandardCharsets.UTF_8));
    }
    return ask("commit", files.toString().strip().replace('\n', ',')).path("remove").asBoolean();
  }

  /** Have it never land; returns whether that is certain, so that its files are nobody's. */
  boolean abort() {
    try {
      return begun != null && ask("abort", "").path("remove").asBoolean();
    } catch (JobRefused unanswered) {
      // Why the job failed is what the user is to be told.
      LOG.warn("the files of job {} are left for a sweep: {}", facts.path("job"), unanswered.getMessage());
      return false;
    }
  }

  private JsonNode ask(String step, String files) {
    String request = "{\"facts\":" + facts + ",\"begun\":" + begun + ",\"files\":[" + files + "]}";
    JsonNode answer;
    try {
      answer = JSON.readTree(driver.answer(step, request));
    } catch (IOException | RuntimeException problem) {
      if (problem instanceof JobRefused refused) {
        throw refused;
      }
      throw new JobRefused("nobody answered who decides on this write (" + step + "): " + problem.getMessage(), problem);
    }
    if (answer.has("error")) {
      throw new JobRefused(answer.get("error").asText());
    }
    return answer;
  }

  /** Where tasks write: a folder, and a subdirectory of it that all of their files go into. */
  record Place(String folder, String subdirectory) {}
}
