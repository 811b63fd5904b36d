package io.penstock.spark;

/** A Python process that has the lakes open which catalogues name: what {@link AttachedPython} asks it for first. */
public interface LakeAnswerers {
  /**
   * Who answers for the lake of a server.
   *
   * @param address where the server is
   * @param token what the server knows the caller by; empty for that of the environment
   */
  PlanDriver of(String address, String token);

  /** Answers true, if there is anybody. */
  boolean isThere();
}
