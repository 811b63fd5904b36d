package io.penstock.spark;

/** Asks a server for a step of a write, as a driver without Python does, and prints what it is answered. */
public final class AskingServer {
  private AskingServer() {}

  public static void main(String[] arguments) {
    try {
      System.out.println(new ServerDriver(java.util.List.of(arguments[0], "")).answer("check", arguments[1]));
    } catch (JobRefused refused) {
      System.out.println("refused: " + refused.getMessage());
    }
  }
}
