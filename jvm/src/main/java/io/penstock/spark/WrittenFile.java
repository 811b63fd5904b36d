package io.penstock.spark;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonInclude.Include;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;

/**
 * A file that a task has written, as the driver is told of it. What means nothing for a file is not told.
 *
 * @param name below the table's root, or the job's folder, as it is, not as a URI
 * @param partition its partition's directory, as Spark spells it
 * @param isChange whether it holds rows of the change data feed
 * @param modified in milliseconds
 * @param etag what the storage says that its content is; empty where it says nothing
 * @param rows null if its footer was not read
 * @param columns what its footer says of the columns that were asked for; null if it was not read
 */
record WrittenFile(
    String name,
    String partition,
    @JsonInclude(Include.NON_DEFAULT) boolean isChange,
    long size,
    @JsonProperty("modified_ms") long modified,
    String etag,
    @JsonInclude(Include.NON_NULL) Long rows,
    @JsonInclude(Include.NON_NULL) List<Footer.Column> columns) {}
