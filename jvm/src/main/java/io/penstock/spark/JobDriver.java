package io.penstock.spark;

/**
 * Who decides what becomes of reads and writes of code that knows only its session: the driver's Python process,
 * or a server. This side passes facts on, and carries the answers.
 */
public interface JobDriver {
  /**
   * What is to be done.
   *
   * @param step check, begin, commit or abort of a write; read; or a question of a catalogue ({@link PenstockCatalog})
   * @param request what is known of it, as JSON
   * @return the answer, as JSON; or an object with the fields error, sentences for the user, and details, a line for code
   */
  String answer(String step, String request);
}
