package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.zip.GZIPOutputStream;

/**
 * A server that decides, for drivers without Python.
 *
 * <p>Everything may be asked again: an attempt of a job begins, commits and is aborted once, however often that is asked
 * for, and a statement that changes something has an id by which the server knows it. So an answer that did not come, or
 * that is not the lake's, is asked for again.
 */
final class ServerDriver implements JobDriver {
  private static final String WRITES = "/api/penstock/v1/spark-writes/";
  private static final String READS = "/api/penstock/v1/spark-reads/";
  private static final String CATALOG = "/api/penstock/v1/spark-catalog/";
  /** What may take long: lines tell how far it is, and the last one has the answer. It may be repeated. */
  private static final String LONG = "maintain";
  private static final Set<String> WRITE_STEPS = Set.of("check", "begin", "commit", "abort");
  /** Before the text of a whole error. */
  private static final String ERROR_MARK = "PENSTOCK-ERROR ";

  private static final int TRIES = 6;
  private static final Duration FIRST_PAUSE = Duration.ofMillis(250);
  private static final Duration ANSWER_TIMEOUT = Duration.ofMinutes(2);
  private static final Duration SILENCE_TIMEOUT = Duration.ofMinutes(10);
  /** The server is busy, starting, or does not know yet whether something was done. */
  private static final Set<Integer> ASK_AGAIN = Set.of(408, 429, 500, 502, 503, 504);

  private static final ObjectMapper JSON = new ObjectMapper();

  private final String address;
  private final String token;
  private final HttpClient client =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(10)).build();

  /** For an address and a token, which may be empty. */
  ServerDriver(List<String> addressAndToken) {
    address = addressAndToken.get(0).replaceAll("/+$", "");
    token = addressAndToken.get(1).isEmpty() ? tokenOfEnvironment() : addressAndToken.get(1);
  }

  private static String tokenOfEnvironment() {
    String file = System.getenv("PENSTOCK_TOKEN_FILE");
    if (System.getenv("PENSTOCK_TOKEN") != null || file == null) {
      return System.getenv("PENSTOCK_TOKEN");
    }
    try {
      return Files.readString(java.nio.file.Path.of(file)).strip();
    } catch (IOException problem) {
      throw new JobRefused("PENSTOCK_TOKEN_FILE names '" + file + "', which cannot be read: " + problem.getMessage());
    }
  }

  @Override
  public String answer(String step, String request) {
    HttpRequest.Builder built =
        HttpRequest.newBuilder(URI.create(address + folder(step) + step))
            .timeout(step.equals(LONG) ? SILENCE_TIMEOUT : ANSWER_TIMEOUT)
            .header("content-type", "application/json")
            .header("content-encoding", "gzip")
            .POST(HttpRequest.BodyPublishers.ofByteArray(packed(request)));
    if (token != null && !token.isEmpty()) {
      built.header("authorization", "Bearer " + token);
    }
    return answer(step, built.build());
  }

  private static String folder(String step) {
    return step.equals("read") ? READS : WRITE_STEPS.contains(step) ? WRITES : CATALOG;
  }

  private String answer(String step, HttpRequest request) {
    Duration pause = FIRST_PAUSE;
    for (int left = TRIES - 1; ; left--) {
      try {
        HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
        boolean isDone = response.statusCode() == 200;
        String body = isDone && step.equals(LONG) ? lastLine(response.body()) : response.body();
        if (isDone && isAnswer(body)) {
          return body;
        }
        if (left == 0 || !isDone && !ASK_AGAIN.contains(response.statusCode())) {
          throw new JobRefused(sentence(response), details(response));
        }
      } catch (ConnectException | HttpConnectTimeoutException notSent) {
        if (left == 0) {
          throw new JobRefused("no Penstock server answers at " + address + ": is it running, and is the address right?");
        }
      } catch (IOException lost) {
        if (left == 0) {
          throw new JobRefused(unknown(step));
        }
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new JobRefused("the job was interrupted while it waited for the lake at " + address, stopped);
      }
      pause = sleep(pause);
    }
  }

  /** The answer at the end of lines; an empty text if something in between has cut them off. */
  private static String lastLine(String lines) throws IOException {
    String line = lines.strip().substring(lines.strip().lastIndexOf('\n') + 1);
    if (!isAnswer(line)) {
      return "";
    }
    JsonNode answer = JSON.readTree(line);
    if (answer.has("error")) {
      throw new JobRefused(answer.path("error").path("message").asText(), ERROR_MARK + line);
    }
    return answer.has("result") ? answer.get("result").toString() : "";
  }

  private String unknown(String step) {
    String why = "the lake at " + address + " did not answer (" + step + ")";
    if (WRITE_STEPS.contains(step)) {
      return why + "; 'penstock jobs list' shows what became of the job";
    }
    return why + "; whether a statement was done that changes something, SHOW LOG and SHOW REFERENCES tell";
  }

  private static Duration sleep(Duration pause) {
    try {
      Thread.sleep(pause.toMillis());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt(); // the next request notices it
    }
    return pause.multipliedBy(2);
  }

  /** Whether it is an answer of the lake, and not a page of something in between, or half of an answer. */
  private static boolean isAnswer(String body) {
    try {
      return JSON.readTree(body).isObject();
    } catch (IOException notOurs) {
      return false;
    }
  }

  private static String sentence(HttpResponse<String> response) {
    try {
      JsonNode message = JSON.readTree(response.body()).path("error").path("message");
      if (message.isTextual()) {
        return message.asText();
      }
    } catch (IOException notOurs) {
      // somebody between this process and the server has answered
    }
    if (response.statusCode() == 200) {
      return "what answers at " + response.uri() + " is not the lake's server, or something in between has answered;"
          + " 'penstock jobs list' shows what became of the job";
    }
    return "the lake's server answered with the status " + response.statusCode();
  }

  /** The whole error, as penstock.spark.unwrap finds it. */
  private static String details(HttpResponse<String> response) {
    return response.statusCode() != 200 && isAnswer(response.body()) ? ERROR_MARK + response.body() : "";
  }

  private static byte[] packed(String request) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (GZIPOutputStream out = new GZIPOutputStream(bytes)) {
      out.write(request.getBytes(StandardCharsets.UTF_8));
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    return bytes.toByteArray();
  }
}
