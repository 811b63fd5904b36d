package io.penstock.spark;

import java.util.List;

/**
 * A file that a task has written, as the driver is told of it.
 *
 * @param name below the table's root, as it is, not as a URI
 * @param partition its partition's directory, as Spark spells it
 * @param isChange whether it holds rows of the change data feed
 * @param etag what the storage says that its content is; empty where it says nothing
 * @param rows -1 if its footer was not read
 * @param columns what its footer says of the columns that were asked for
 */
record WrittenFile(
    String name,
    String partition,
    boolean isChange,
    long size,
    long modified,
    String etag,
    long rows,
    List<Footer.Column> columns) {}
