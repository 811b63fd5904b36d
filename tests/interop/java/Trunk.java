import java.util.List;
import java.util.UUID;
import org.projectnessie.client.api.NessieApiV2;
import org.projectnessie.error.NessieConflictException;
import org.projectnessie.error.NessieNotFoundException;
import org.projectnessie.model.Branch;
import org.projectnessie.model.CommitMeta;
import org.projectnessie.model.CommitResponse;
import org.projectnessie.model.Content;
import org.projectnessie.model.ContentKey;
import org.projectnessie.model.IcebergTable;
import org.projectnessie.model.Operation;
import org.projectnessie.model.Reference;

/** A scenario's own part of a server: a branch without a table, and what is done to branches again and again. */
final class Trunk {
    final NessieApiV2 api;
    final String name = "java-" + UUID.randomUUID().toString().substring(0, 12);

    Trunk(NessieApiV2 api) throws NessieNotFoundException, NessieConflictException {
        this.api = api;
        branch(name, Branch.of("main", api.getConfig().getNoAncestorHash()));
    }

    /** Create a branch at a hash of another one. */
    Branch branch(String created, Reference at) throws NessieNotFoundException, NessieConflictException {
        return (Branch) api.createReference()
            .sourceRefName(at.getName())
            .reference(Branch.of(created, at.getHash()))
            .create();
    }

    /** A branch or tag as it is now. */
    Reference now(String reference) throws NessieNotFoundException {
        return api.getReference().refName(reference).get();
    }

    Branch head() throws NessieNotFoundException {
        return (Branch) now(name);
    }

    /** Commit on a branch as it is known to be. */
    CommitResponse commit(Branch on, String message, Operation... operations)
        throws NessieNotFoundException, NessieConflictException {
        return api.commitMultipleOperations()
            .branch(on)
            .commitMeta(CommitMeta.builder().message(message).addAllAuthors("anna").build())
            .operations(List.of(operations))
            .commitWithResponse();
    }

    /** Commit one content, and return the branch after it. */
    Branch put(Branch on, String key, Content content) throws NessieNotFoundException, NessieConflictException {
        return commit(on, "put " + key, Operation.Put.of(key(key), content)).getTargetBranch();
    }

    /** Commit the next version of a table that is there. */
    Branch update(Branch on, String key, int version) throws NessieNotFoundException, NessieConflictException {
        String identity = api.getContent().reference(on).getSingle(key(key)).getContent().getId();
        return put(on, key, table(version, identity));
    }

    static ContentKey key(String path) {
        return ContentKey.fromPathString(path);
    }

    static IcebergTable table(int version) {
        return table(version, null);
    }

    static IcebergTable table(int version, String identity) {
        return IcebergTable.of("s3://lake/v" + version + ".json", version, 1, 2, 3, identity);
    }
}
