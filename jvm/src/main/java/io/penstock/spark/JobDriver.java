package io.penstock.spark;

/**
 * Who decides what becomes of a job that was started by code that knows only its session: the driver's Python process,
 * or a server. This side passes facts on, and carries the answers.
 */
public interface JobDriver {
  /**
   * What is to be done.
   *
   * @param step check, begin, commit or abort
   * @param request what is known of the write, as JSON
   * @return the answer, as JSON; or an object whose only field, error, is a sentence for the user
   */
  String answer(String step, String request);
}
