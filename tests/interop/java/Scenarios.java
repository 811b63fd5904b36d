import static org.projectnessie.model.FetchOption.ALL;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.projectnessie.client.NessieClientBuilder;
import org.projectnessie.client.api.NessieApiV2;
import org.projectnessie.error.NessieContentNotFoundException;
import org.projectnessie.error.NessieReferenceAlreadyExistsException;
import org.projectnessie.error.NessieReferenceConflictException;
import org.projectnessie.error.NessieReferenceNotFoundException;
import org.projectnessie.model.Branch;
import org.projectnessie.model.CommitResponse;
import org.projectnessie.model.Conflict;
import org.projectnessie.model.Content;
import org.projectnessie.model.ContentKey;
import org.projectnessie.model.Detached;
import org.projectnessie.model.DiffResponse.DiffEntry;
import org.projectnessie.model.EntriesResponse;
import org.projectnessie.model.GarbageCollectorConfig;
import org.projectnessie.model.IcebergView;
import org.projectnessie.model.ImmutableDeltaLakeTable;
import org.projectnessie.model.LogResponse.LogEntry;
import org.projectnessie.model.MergeBehavior;
import org.projectnessie.model.MergeKeyBehavior;
import org.projectnessie.model.MergeResponse;
import org.projectnessie.model.Namespace;
import org.projectnessie.model.NessieConfiguration;
import org.projectnessie.model.Operation;
import org.projectnessie.model.Reference;
import org.projectnessie.model.RepositoryConfig;
import org.projectnessie.model.Tag;
import org.projectnessie.model.UDF;

/**
 * What a program does with Nessie's Java client: `Scenarios URI` runs all scenarios and prints a line for each,
 * `ok NAME` or `failed NAME: why`.
 */
public final class Scenarios {
    private interface Scenario {
        void run(Trunk trunk) throws Exception;
    }

    private static final Map<String, Scenario> ALL_OF_THEM = new LinkedHashMap<>();

    static {
        ALL_OF_THEM.put("the_configuration_is_understood", Scenarios::configuration);
        ALL_OF_THEM.put("every_content_comes_back_as_it_went", Scenarios::contents);
        ALL_OF_THEM.put("references_are_created_assigned_and_deleted", Scenarios::references);
        ALL_OF_THEM.put("references_tell_how_far_they_are_apart", Scenarios::metadata);
        ALL_OF_THEM.put("the_log_tells_operations_and_parents", Scenarios::log);
        ALL_OF_THEM.put("long_answers_come_in_pages", Scenarios::pages);
        ALL_OF_THEM.put("entries_are_found_by_key_range_and_filter", Scenarios::entries);
        ALL_OF_THEM.put("a_diff_shows_both_sides", Scenarios::diff);
        ALL_OF_THEM.put("keys_with_special_characters_are_found", Scenarios::keys);
        ALL_OF_THEM.put("conflicting_commits_name_every_conflict", Scenarios::commitConflicts);
        ALL_OF_THEM.put("a_merge_brings_what_the_branch_has", Scenarios::merge);
        ALL_OF_THEM.put("a_conflicting_merge_names_its_conflicts", Scenarios::mergeConflicts);
        ALL_OF_THEM.put("a_merge_does_with_each_key_as_it_is_told", Scenarios::mergeBehaviors);
        ALL_OF_THEM.put("a_transplant_keeps_the_commits_apart", Scenarios::transplant);
        ALL_OF_THEM.put("the_history_of_a_reference_is_consistent", Scenarios::referenceHistory);
        ALL_OF_THEM.put("the_repository_keeps_its_configuration", Scenarios::repositoryConfiguration);
        ALL_OF_THEM.put("refusals_are_told_apart", Scenarios::refusals);
    }

    public static void main(String[] arguments) {
        try (NessieApiV2 api = connect(arguments[0])) {
            ALL_OF_THEM.forEach((name, scenario) -> {
                try {
                    scenario.run(new Trunk(api));
                    System.out.println("ok " + name);
                } catch (Exception | AssertionError failure) {
                    StackTraceElement[] trace = failure.getStackTrace();
                    String where = Stream.of(trace)
                        .filter(frame -> frame.getClassName().equals("Scenarios"))
                        .filter(frame -> !frame.getMethodName().startsWith("same"))
                        .findFirst().map(frame -> " at line " + frame.getLineNumber()).orElse("");
                    System.out.println("failed " + name + ": " + failure.toString().replace('\n', ' ') + where);
                }
            });
        }
    }

    static NessieApiV2 connect(String uri) {
        return NessieClientBuilder.createClientBuilder(null, null).withUri(uri + "/api/v2").build(NessieApiV2.class);
    }

    private static void configuration(Trunk trunk) {
        NessieConfiguration found = trunk.api.getConfig();
        same("main", found.getDefaultBranch());
        same(2, found.getMaxSupportedApiVersion());
        same("2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d", found.getNoAncestorHash());
        same(true, found.getSpecVersion().startsWith("2."));
    }

    private static void contents(Trunk trunk) throws Exception {
        Map<String, Content> put = new LinkedHashMap<>();
        put.put("sales", Namespace.of(List.of("sales"), Map.of("owner", "anna")));
        put.put("sales.orders", Trunk.table(1));
        put.put("sales.by_day", IcebergView.of("s3://lake/view.json", 3, 4));
        put.put("sales.area", UDF.udf("s3://lake/udf.json", "5", "6"));
        put.put("sales.clicks", ImmutableDeltaLakeTable.builder()
            .lastCheckpoint("s3://lake/checkpoint")
            .addCheckpointLocationHistory("s3://lake/checkpoint")
            .addMetadataLocationHistory("s3://lake/1.json", "s3://lake/2.json")
            .build());
        put.put("sales.bare", ImmutableDeltaLakeTable.builder().build());
        Operation[] operations = put.entrySet().stream()
            .map(each -> Operation.Put.of(Trunk.key(each.getKey()), each.getValue()))
            .toArray(Operation[]::new);
        CommitResponse committed = trunk.commit(trunk.head(), "all types", operations);
        Map<ContentKey, String> identities = committed.toAddedContentsMap();
        same(put.size(), identities.size());

        Branch head = committed.getTargetBranch();
        same(head, trunk.head());
        Map<ContentKey, Content> found = trunk.api.getContent().reference(head)
            .keys(put.keySet().stream().map(Trunk::key).collect(Collectors.toList())).get();
        for (Map.Entry<String, Content> each : put.entrySet()) {
            ContentKey key = Trunk.key(each.getKey());
            Content expected = each.getValue().withId(identities.get(key));
            same(expected, found.get(key));
            same(expected, trunk.api.getContent().refName(trunk.name).getSingle(key).getContent());
        }
    }

    private static void references(Trunk trunk) throws Exception {
        Branch first = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch second = trunk.put(first, "b", Trunk.table(1));
        Branch dev = trunk.branch(trunk.name + "/dev", first);
        Tag tag = (Tag) trunk.api.createReference().sourceRefName(trunk.name)
            .reference(Tag.of(trunk.name + "-tag", first.getHash())).create();
        same(first.getHash(), tag.getHash());

        Branch assigned = trunk.api.assignBranch().branch(dev).assignTo(second).assignAndGet();
        same(second.getHash(), assigned.getHash());
        Tag moved = trunk.api.assignTag().tag(tag).assignTo(Detached.of(second.getHash())).assignAndGet();
        same(second.getHash(), moved.getHash());
        Reference back = trunk.api.assignReference().reference(moved).assignTo(first).assignAndGet();
        same(first.getHash(), back.getHash());

        same(assigned, trunk.api.deleteBranch().branch(assigned).getAndDelete());
        trunk.api.deleteReference().reference(back).delete();
        thrown(NessieReferenceNotFoundException.class, () -> trunk.now(dev.getName()));
        thrown(NessieReferenceNotFoundException.class, () -> trunk.now(tag.getName()));
    }

    private static void metadata(Trunk trunk) throws Exception {
        Branch dev = trunk.branch(trunk.name + "-dev", trunk.now("main"));
        Branch ahead = trunk.put(dev, "table-" + trunk.name, Trunk.table(1));
        Reference found = trunk.api.getReference().refName(dev.getName()).fetch(ALL).get();
        same(1, found.getMetadata().getNumCommitsAhead());
        same(0, found.getMetadata().getNumCommitsBehind());
        same(dev.getHash(), found.getMetadata().getCommonAncestorHash());
        same(ahead.getHash(), found.getMetadata().getCommitMetaOfHEAD().getHash());
        List<Reference> listed = trunk.api.getAllReferences().fetch(ALL)
            .filter("ref.name == '" + dev.getName() + "'").stream().collect(Collectors.toList());
        same(List.of(found), listed);
    }

    private static void log(Trunk trunk) throws Exception {
        Branch first = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch second = trunk.commit(first, "drop it", Operation.Delete.of(Trunk.key("a"))).getTargetBranch();
        List<LogEntry> log = trunk.api.getCommitLog().reference(second).fetch(ALL).stream()
            .collect(Collectors.toList());
        same(List.of("drop it", "put a"), messages(log));
        same(List.of(Operation.Delete.of(Trunk.key("a"))), log.get(0).getOperations());
        same(first.getHash(), log.get(0).getParentCommitHash());
        same(List.of(first.getHash()), log.get(0).getCommitMeta().getParentCommitHashes());
        same(List.of("anna"), log.get(0).getCommitMeta().getAllAuthors());
        same(false, log.get(0).getCommitMeta().getCommitTime() == null);
        same(1, log.get(1).getOperations().size());
        same(List.of("put a"), messages(trunk.api.getCommitLog().refName(trunk.name)
            .filter("commit.message.startsWith('put')").stream().collect(Collectors.toList())));
        same(null, trunk.api.getCommitLog().refName(trunk.name).get().getLogEntries().get(0).getOperations());
    }

    private static void pages(Trunk trunk) throws Exception {
        Branch head = trunk.head();
        List<String> hashes = new ArrayList<>();
        List<String> names = new ArrayList<>();
        for (int number = 0; number < 7; number++) {
            names.add("t" + number);
            head = trunk.put(head, "t" + number, Trunk.table(1));
            hashes.add(0, head.getHash());
        }
        same(2, trunk.api.getCommitLog().refName(trunk.name).maxRecords(2).get().getLogEntries().size());
        same(hashes, trunk.api.getCommitLog().refName(trunk.name).maxRecords(2).stream()
            .map(entry -> entry.getCommitMeta().getHash()).collect(Collectors.toList()));
        EntriesResponse page = trunk.api.getEntries().refName(trunk.name).maxRecords(3).get();
        same(true, page.isHasMore());
        same(names, trunk.api.getEntries().refName(trunk.name).maxRecords(3).stream()
            .map(entry -> entry.getName().toString()).collect(Collectors.toList()));
        same(names, trunk.api.getDiff().fromRef(Detached.of(trunk.api.getConfig().getNoAncestorHash()))
            .toRefName(trunk.name).maxRecords(3).stream()
            .map(entry -> entry.getKey().toString()).collect(Collectors.toList()));
        long references = trunk.api.getAllReferences().stream().count();
        same(references, trunk.api.getAllReferences().maxRecords(1).stream().count());
    }

    private static void entries(Trunk trunk) throws Exception {
        Operation[] operations = Stream.concat(
            Stream.of(Operation.Put.of(Trunk.key("n"), Namespace.of("n"))),
            IntStream.range(0, 5).mapToObj(each -> Operation.Put.of(Trunk.key("n.t" + each), Trunk.table(each)))
        ).toArray(Operation[]::new);
        trunk.commit(trunk.head(), "five tables", operations);
        same(List.of("n.t1", "n.t2", "n.t3"), trunk.api.getEntries().refName(trunk.name)
            .minKey(Trunk.key("n.t1")).maxKey(Trunk.key("n.t3")).stream()
            .map(entry -> entry.getName().toString()).collect(Collectors.toList()));
        same(5L, trunk.api.getEntries().refName(trunk.name).prefixKey(Trunk.key("n"))
            .filter("entry.contentType == 'ICEBERG_TABLE'").stream().count());
        EntriesResponse.Entry last = trunk.api.getEntries().refName(trunk.name).withContent(true)
            .key(Trunk.key("n.t4")).get().getEntries().get(0);
        same(Content.Type.ICEBERG_TABLE, last.getType());
        same(Trunk.table(4, last.getContentId()), last.getContent());
    }

    private static void diff(Trunk trunk) throws Exception {
        Branch base = trunk.put(trunk.head(), "changed", Trunk.table(1));
        base = trunk.put(base, "removed", Trunk.table(1));
        Branch dev = trunk.branch(trunk.name + "-dev", base);
        dev = trunk.update(dev, "changed", 2);
        dev = trunk.commit(dev, "drop", Operation.Delete.of(Trunk.key("removed"))).getTargetBranch();
        dev = trunk.put(dev, "added", Trunk.table(1));
        List<String> seen = trunk.api.getDiff().fromRef(base).toRef(dev).stream()
            .map(Scenarios::sides).collect(Collectors.toList());
        same(List.of("added: - v1", "changed: v1 v2", "removed: v1 -"), seen);
    }

    private static String sides(DiffEntry entry) {
        return entry.getKey() + ": " + side(entry.getFrom()) + " " + side(entry.getTo());
    }

    private static String side(Content content) {
        return content == null ? "-" : "v" + ((org.projectnessie.model.IcebergTable) content).getSnapshotId();
    }

    private static void keys(Trunk trunk) throws Exception {
        for (String name : List.of("a.b", "größe", "with space", "q?&#=+", "per%cent", "sla/sh", "back\\slash", "s*r")) {
            ContentKey key = ContentKey.of(name);
            trunk.commit(trunk.head(), name, Operation.Put.of(key, Trunk.table(1)));
            Content found = trunk.api.getContent().refName(trunk.name).getSingle(key).getContent();
            same(Trunk.table(1, found.getId()), found);
            same(1, trunk.api.getContent().refName(trunk.name).key(key).get().size());
            same(key, trunk.api.getEntries().refName(trunk.name).key(key).get().getEntries().get(0).getName());
        }
    }

    private static void commitConflicts(Trunk trunk) throws Exception {
        Branch base = trunk.put(trunk.head(), "a", Trunk.table(1));
        base = trunk.put(base, "b", Trunk.table(1));
        String a = trunk.api.getContent().reference(base).getSingle(Trunk.key("a")).getContent().getId();
        trunk.commit(trunk.update(base, "a", 2), "drop", Operation.Delete.of(Trunk.key("b")));
        Branch late = base;
        NessieReferenceConflictException thrown = thrown(NessieReferenceConflictException.class, () -> trunk.commit(
            late,
            "too late",
            Operation.Put.of(Trunk.key("a"), Trunk.table(3, a)),
            Operation.Delete.of(Trunk.key("b"))));
        same(List.of("a VALUE_DIFFERS", "b KEY_DOES_NOT_EXIST"), conflicts(thrown));
        thrown = thrown(NessieReferenceConflictException.class, () -> trunk.put(late, "no.such.t", Trunk.table(1)));
        same(List.of("no NAMESPACE_ABSENT", "no.such NAMESPACE_ABSENT"), conflicts(thrown));
        // Another table of the same branch is nobody's business.
        trunk.put(late, "c", Trunk.table(1));
    }

    private static void merge(Trunk trunk) throws Exception {
        Branch base = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch dev = trunk.branch(trunk.name + "-dev", base);
        dev = trunk.update(trunk.put(dev, "b", Trunk.table(1)), "b", 2);

        MergeResponse tried = trunk.api.mergeRefIntoBranch().branch(base).fromRef(dev).dryRun(true).merge();
        same(List.of(false, true), List.of(tried.wasApplied(), tried.wasSuccessful()));
        same(base, trunk.head());

        MergeResponse merged = trunk.api.mergeRefIntoBranch().branch(base).fromRef(dev).message("bring it").merge();
        same(List.of(true, true), List.of(merged.wasApplied(), merged.wasSuccessful()));
        same(base.getHash(), merged.getCommonAncestor());
        same(trunk.head().getHash(), merged.getResultantTargetHash());
        List<LogEntry> log = trunk.api.getCommitLog().refName(trunk.name).fetch(ALL).stream()
            .collect(Collectors.toList());
        same(List.of("bring it", "put a"), messages(log));
        same(List.of(base.getHash(), dev.getHash()), log.get(0).getCommitMeta().getParentCommitHashes());
    }

    private static Branch[] divided(Trunk trunk) throws Exception {
        Branch base = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch dev = trunk.branch(trunk.name + "-dev", base);
        return new Branch[] {trunk.update(base, "a", 2), trunk.put(trunk.update(dev, "a", 3), "b", Trunk.table(1))};
    }

    private static void mergeConflicts(Trunk trunk) throws Exception {
        Branch[] sides = divided(trunk);
        NessieReferenceConflictException thrown = thrown(NessieReferenceConflictException.class,
            () -> trunk.api.mergeRefIntoBranch().branch(sides[0]).fromRef(sides[1]).merge());
        // Nessie lists the other keys as well, as KEY_CONFLICT, though nothing is wrong with them.
        same(true, conflicts(thrown).contains("a VALUE_DIFFERS"));
        MergeResponse told = trunk.api.mergeRefIntoBranch().branch(sides[0]).fromRef(sides[1])
            .returnConflictAsResult(true).merge();
        same(List.of(false, false), List.of(told.wasApplied(), told.wasSuccessful()));
        same(List.of("a VALUE_DIFFERS", "b -"), told.getDetails().stream()
            .map(detail -> detail.getKey() + " " + (detail.getConflict() == null
                ? "-" : detail.getConflict().conflictType()))
            .sorted().collect(Collectors.toList()));
        same(sides[0], trunk.head());
    }

    private static void mergeBehaviors(Trunk trunk) throws Exception {
        Branch[] sides = divided(trunk);
        Content mine = trunk.api.getContent().reference(sides[0]).getSingle(Trunk.key("a")).getContent();
        MergeResponse merged = trunk.api.mergeRefIntoBranch().branch(sides[0]).fromRef(sides[1])
            .mergeKeyBehavior(MergeKeyBehavior.of(
                Trunk.key("a"), MergeBehavior.NORMAL, mine, Trunk.table(9, mine.getId())))
            .mergeMode(Trunk.key("b"), MergeBehavior.DROP)
            .merge();
        same(true, merged.wasApplied());
        Map<ContentKey, Content> found = trunk.api.getContent().refName(trunk.name)
            .key(Trunk.key("a")).key(Trunk.key("b")).get();
        same(Map.of(Trunk.key("a"), Trunk.table(9, mine.getId())), found);
    }

    private static void transplant(Trunk trunk) throws Exception {
        Branch base = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch first = trunk.put(trunk.branch(trunk.name + "-dev", base), "b", Trunk.table(1));
        Branch second = trunk.put(first, "c", Trunk.table(1));
        Branch third = trunk.put(second, "d", Trunk.table(1));
        MergeResponse answer = trunk.api.transplantCommitsIntoBranch().branch(base).fromRefName(first.getName())
            .hashesToTransplant(List.of(second.getHash(), third.getHash())).transplant();
        same(true, answer.wasApplied());
        same(trunk.head().getHash(), answer.getResultantTargetHash());
        same(List.of("put d", "put c", "put a"), messages(
            trunk.api.getCommitLog().refName(trunk.name).stream().collect(Collectors.toList())));
    }

    private static void referenceHistory(Trunk trunk) throws Exception {
        Branch head = trunk.update(trunk.put(trunk.head(), "a", Trunk.table(1)), "a", 2);
        var history = trunk.api.referenceHistory().refName(trunk.name).headCommitsToScan(10).get();
        same(head.getHash(), history.getReference().getHash());
        same(head.getHash(), history.current().commitHash());
        same("COMMIT_CONSISTENT", history.current().commitConsistency().name());
    }

    private static void repositoryConfiguration(Trunk trunk) throws Exception {
        GarbageCollectorConfig config = GarbageCollectorConfig.builder()
            .defaultCutoffPolicy("P30D").expectedFileCountPerContent(1000).build();
        trunk.api.updateRepositoryConfig().repositoryConfig(config).update();
        same(config, trunk.api.updateRepositoryConfig().repositoryConfig(config).update().getPrevious());
        same(List.of(config), trunk.api.getRepositoryConfig()
            .type(RepositoryConfig.Type.GARBAGE_COLLECTOR).get().getConfigs());
    }

    private static void refusals(Trunk trunk) throws Exception {
        Branch first = trunk.put(trunk.head(), "a", Trunk.table(1));
        Branch second = trunk.update(first, "a", 2);
        thrown(NessieReferenceNotFoundException.class, () -> trunk.now(trunk.name + "-absent"));
        NessieContentNotFoundException absent = thrown(NessieContentNotFoundException.class,
            () -> trunk.api.getContent().reference(second).getSingle(Trunk.key("absent")));
        same(Trunk.key("absent"), absent.getErrorDetails().contentKey());
        thrown(NessieReferenceAlreadyExistsException.class, () -> trunk.branch(trunk.name, second));
        NessieReferenceConflictException stale = thrown(NessieReferenceConflictException.class,
            () -> trunk.api.deleteBranch().branch(first).delete());
        same(List.of(Conflict.ConflictType.UNEXPECTED_HASH), stale.getErrorDetails().conflicts().stream()
            .map(Conflict::conflictType).collect(Collectors.toList()));
    }

    private interface Act {
        void run() throws Exception;
    }

    private static <E extends Exception> E thrown(Class<E> expected, Act act) throws Exception {
        try {
            act.run();
        } catch (Exception failure) {
            if (expected.isInstance(failure)) {
                return expected.cast(failure);
            }
            throw failure;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }

    private static List<String> conflicts(NessieReferenceConflictException thrown) {
        return thrown.getErrorDetails().conflicts().stream()
            .map(conflict -> conflict.key() + " " + conflict.conflictType()).sorted().collect(Collectors.toList());
    }

    private static List<String> messages(List<LogEntry> log) {
        return log.stream().map(entry -> entry.getCommitMeta().getMessage()).collect(Collectors.toList());
    }

    private static void same(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
