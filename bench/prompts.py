"""What the contenders are asked: prompts by length, and short messages of our own writing."""

import random

# Plain text in every Qwen2 vocabulary: behind the single bytes, before the rare and the control
# tokens.
_FIRST_ID, _END_ID = 1_000, 100_000

MESSAGES = (
    "My flight was cancelled and nobody at the desk would help us.",
    "今天阳光很好，我带孩子去公园放了风筝，特别开心！",
    "How do I keep basil alive on a dark kitchen window?",
    "这家店的蛋糕又干又贵，下次不会再来了。",
    "I finally finished my first half marathon, what should I do to recover?",
    "最近工作压力很大，晚上总是睡不着，有什么建议吗？",
    "The new keyboard is wonderful, quiet and light. Which cleaning kit would you buy?",
    "周末想去海边走走，需要准备些什么？",
    "My neighbour plays drums every night and I am losing patience.",
    "奶奶给我织了一条围巾，好温暖，我该怎么谢谢她？",
    "Can you suggest a quick dinner with rice, eggs and spinach?",
    "手机用了两个月就坏了，客服还一直推脱，真生气。",
    "We adopted a shy cat yesterday. How do I win her trust?",
    "请用简单的话解释一下什么是彩虹。",
    "The landlord fixed the heating within an hour, I am so relieved.",
    "我想学做面包，第一次应该从哪一种开始？",
)


def random_ids(num_tokens: int, seed: int = 0) -> list[int]:
    """A prompt of so many tokens, the same for the same seed: speed depends on length alone, and
    nothing that anybody has cached begins like it."""
    generator = random.Random(seed)
    return [generator.randrange(_FIRST_ID, _END_ID) for _ in range(num_tokens)]
