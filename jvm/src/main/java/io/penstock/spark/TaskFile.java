package io.penstock.spark;

import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * A file that a task of a {@link SessionJob} has written.
 *
 * @param name below the job's folder, as it is, not as a URI
 * @param partition its partition's directory, as Spark spells it
 * @param modified in milliseconds
 * @param etag what the storage says that its content is; empty where it says nothing
 */
record TaskFile(String name, String partition, long size, @JsonProperty("modified_ms") long modified, String etag) {}
