package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.zip.GZIPOutputStream;

/**
 * A server that decides, for drivers without Python.
 *
 * <p>Every step may be asked again: an attempt of a job begins, commits and is aborted once, however often that is
 * asked for. So an answer that did not come, or that is not the lake's, is asked for again.
 */
final class ServerDriver implements JobDriver {
  private static final String WRITES = "/api/penstock/v1/spark-writes/";
  private static final String READS = "/api/penstock/v1/spark-reads/";
  private static final int TRIES = 6;
  private static final Duration FIRST_PAUSE = Duration.ofMillis(250);
  private static final Duration ANSWER_TIMEOUT = Duration.ofMinutes(2);
  /** The server is busy, starting, or does not know yet whether something was done. */
  private static final Set<Integer> ASK_AGAIN = Set.of(408, 429, 500, 502, 503, 504);

  private static final ObjectMapper JSON = new ObjectMapper();

  private final String address;
  private final String token;
  private final HttpClient client =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(10)).build();

  ServerDriver(String address, String token) {
    this.address = address.replaceAll("/+$", "");
    this.token = token;
  }

  @Override
  public String answer(String step, String request) {
    HttpRequest.Builder built =
        HttpRequest.newBuilder(URI.create(address + (step.equals("read") ? READS : WRITES) + step))
            .timeout(ANSWER_TIMEOUT)
            .header("content-type", "application/json")
            .header("content-encoding", "gzip")
            .POST(HttpRequest.BodyPublishers.ofByteArray(packed(request)));
    if (token != null && !token.isEmpty()) {
      built.header("authorization", "Bearer " + token);
    }
    return answer(step, built.build());
  }

  private String answer(String step, HttpRequest request) {
    Duration pause = FIRST_PAUSE;
    for (int left = TRIES - 1; ; left--) {
      try {
        HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
        boolean isDone = response.statusCode() == 200;
        if (isDone && isAnswer(response.body())) {
          return response.body();
        }
        if (left == 0 || !isDone && !ASK_AGAIN.contains(response.statusCode())) {
          throw new JobRefused(sentence(response));
        }
      } catch (IOException lost) {
        if (left == 0) {
          throw new JobRefused(
              "the lake at " + address + " did not answer (" + step + "); what became of the job 'penstock jobs list' tells",
              lost);
        }
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new JobRefused("the job was interrupted while it waited for the lake at " + address, stopped);
      }
      pause = sleep(pause);
    }
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
          + " what became of the job 'penstock jobs list' tells";
    }
    return "the lake's server answered with the status " + response.statusCode();
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
