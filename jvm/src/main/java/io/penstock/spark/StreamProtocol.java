package io.penstock.spark;

import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/**
 * How streams write files, unless their path stands for a table of a lake: then they are refused. They keep a list of
 * their own of what they wrote, which no table has, and without a word they would write past the table.
 */
public final class StreamProtocol extends ManifestFileCommitProtocol {
  private static final long serialVersionUID = 1L;

  private final transient SessionJob session;

  /** Made by Spark, for every batch of a stream to files. */
  public StreamProtocol(String jobId, String path) {
    super(jobId, path);
    session = SessionJob.of(jobId, path);
  }

  @Override
  public void setupJob(JobContext context) {
    if (session != null) {
      throw session.refusal();
    }
    super.setupJob(context);
  }
}
